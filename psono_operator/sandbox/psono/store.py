"""API keys, entries, and what a Psono server would store of them.

An entry's content is encrypted with a key of its own when it is written; that key is wrapped once more for
each API key it is assigned to. Both layers are XSalsa20-Poly1305, and what is wrapped is the key's 64
hexadecimal characters, as clients do it. Reads hand out what is stored. Knows who may read; refuses to know
HTTP. Nothing is imported from the operator, so that no mistake can cancel itself out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from nacl.secret import SecretBox


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What an administrator copies out of Psono: the id, and the secret key as 64 hexadecimal digits."""

    id: str
    secret_key_hex: str = field(repr=False)


@dataclass(slots=True)
class _Sealed:
    text: str = field(repr=False)
    nonce: str = field(repr=False)


@dataclass(slots=True)
class _Key:
    secret: bytes = field(repr=False)
    read: bool
    write: bool
    active: bool
    owner_active: bool
    allow_insecure_access: bool
    restrict_to_secrets: bool
    wrapped: dict[str, _Sealed] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)

    @property
    def usable(self) -> bool:
        return self.active and self.owner_active


@dataclass(slots=True)
class _Entry:
    key: bytes = field(repr=False)
    data: _Sealed
    write_date: datetime
    read_count: int = 0


class Store:
    """The rows of the server's database that reading touches."""

    def __init__(self, now: Callable[[], datetime], random_bytes: Callable[[int], bytes]) -> None:
        self._now = now
        self._random = random_bytes
        self._keys: dict[str, _Key] = {}
        self._entries: dict[str, _Entry] = {}

    def add_key(
        self,
        *,
        read: bool = True,
        write: bool = False,
        active: bool = True,
        owner_active: bool = True,
        allow_insecure_access: bool = False,
        restrict_to_secrets: bool = True,
    ) -> ApiKey:
        """A new API key with no entry assigned."""
        key = ApiKey(self._new_id(), self._random(32).hex())
        self._keys[key.id] = _Key(
            bytes.fromhex(key.secret_key_hex),
            read,
            write,
            active,
            owner_active,
            allow_insecure_access,
            restrict_to_secrets,
        )
        return key

    def change_key(self, key: ApiKey, **changes: bool) -> None:
        """Set ``read``, ``write``, ``active``, ``owner_active`` and the like."""
        for name, value in changes.items():
            if not isinstance(getattr(self._keys[key.id], name), bool):
                raise TypeError(f"{name} is not a switch of an API key")
            setattr(self._keys[key.id], name, value)

    def delete_key(self, key: ApiKey) -> None:
        """Forget the key; from then on it is refused like an unknown one."""
        del self._keys[key.id]

    def add_entry(self, content: Mapping[str, object] | bytes, keys: Iterable[ApiKey] = ()) -> str:
        """A new entry, assigned to ``keys``. Bytes are encrypted as they are, however odd. Returns its id."""
        secret_id = self._new_id()
        entry_key = self._random(32)
        self._entries[secret_id] = _Entry(entry_key, self._seal(entry_key, _plaintext(content)), self._now())
        for key in keys:
            self.assign(key, secret_id)
        return secret_id

    def update_entry(self, secret_id: str, content: Mapping[str, object] | bytes) -> None:
        """Encrypt anew with a new nonce. The write date always moves, even where the clock stands."""
        entry = self._entries[secret_id]
        entry.data = self._seal(entry.key, _plaintext(content))
        entry.write_date = max(self._now(), entry.write_date + timedelta(microseconds=1))

    def assign(self, key: ApiKey, secret_id: str) -> None:
        """Wrap the entry's key for this API key."""
        record = self._keys[key.id]
        record.wrapped[secret_id] = self._seal(record.secret, self._entries[secret_id].key.hex().encode())
        record.lost.discard(secret_id)

    def revoke(self, key: ApiKey, secret_id: str) -> None:
        """Take the entry off the API key: neither read nor listed."""
        self._keys[key.id].wrapped.pop(secret_id, None)

    def lose(self, key: ApiKey, secret_id: str) -> None:
        """Take the owner's right to the entry: no longer read, but still listed, as on the real server."""
        self._keys[key.id].lost.add(secret_id)

    def sealed(self, api_key_id: str, secret_id: str) -> dict[str, object] | None:
        """The answer to a read, None where it is refused."""
        key = self._keys.get(api_key_id)
        if key is None or not (key.usable and key.read) or secret_id in key.lost:
            return None
        wrapped = key.wrapped.get(secret_id)
        if wrapped is None:
            return None
        entry = self._entries[secret_id]
        answer: dict[str, object] = {
            "data": entry.data.text,
            "data_nonce": entry.data.nonce,
            "secret_key": wrapped.text,
            "secret_key_nonce": wrapped.nonce,
            "read_count": entry.read_count,
        }
        entry.read_count += 1
        return answer

    def plaintext(self, api_key_id: str, secret_id: str, secret_key_hex: object = None) -> bytes | None:
        """The content, decrypted on the server's side as for an insecure key; None where it is refused.

        With ``secret_key_hex`` None the rule about insecure keys is left aside.
        """
        key = self._keys.get(api_key_id)
        if key is None or self.sealed(api_key_id, secret_id) is None:
            return None
        if secret_key_hex is not None and (
            not key.allow_insecure_access or secret_key_hex != key.secret.hex()
        ):
            return None
        entry = self._entries[secret_id]
        return SecretBox(entry.key).decrypt(bytes.fromhex(entry.data.text), bytes.fromhex(entry.data.nonce))

    def report(self, api_key_id: str) -> dict[str, object] | None:
        """The answer to an inspect, None where it is refused. Needs no read right."""
        key = self._keys.get(api_key_id)
        if key is None or not key.usable:
            return None
        return {
            "allow_insecure_access": key.allow_insecure_access,
            "restrict_to_secrets": key.restrict_to_secrets,
            "read": key.read,
            "write": key.write,
            "api_key_secrets": [
                {
                    "secret_id": secret_id,
                    "write_date": self._entries[secret_id].write_date.isoformat(timespec="microseconds"),
                }
                for secret_id in key.wrapped
            ],
        }

    def _new_id(self) -> str:
        return str(UUID(bytes=self._random(16), version=4))

    def _seal(self, key: bytes, plaintext: bytes) -> _Sealed:
        nonce = self._random(SecretBox.NONCE_SIZE)
        return _Sealed(SecretBox(key).encrypt(plaintext, nonce).ciphertext.hex(), nonce.hex())


def _plaintext(content: Mapping[str, object] | bytes) -> bytes:
    return content if isinstance(content, bytes) else json.dumps(content, ensure_ascii=False).encode()
