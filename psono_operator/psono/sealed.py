"""An entry as the server hands it out, and the two layers around its content.

XSalsa20-Poly1305 both times: the API secret key opens the entry's key, which is 64 hexadecimal characters,
and that opens the content. The server checks nothing of what writers store, so each part is checked here
and each failure has a stage. Pure and synchronous; the caller decides about threads. It refuses to know
the network. Nothing in the cryptography binds content to an entry's id: only TLS does.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from dataclasses import dataclass, field

from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

from psono_operator.psono.entry import Entry
from psono_operator.psono.errors import DecryptionError, Stage
from psono_operator.psono.secretbytes import SecretBytes

_ENTRY_KEY = re.compile(rb"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True, eq=False)
class SealedEntry:
    """The four hexadecimal texts of a read answer, unchecked. Prints nothing of them."""

    data: str = field(repr=False)
    data_nonce: str = field(repr=False)
    secret_key: str = field(repr=False)
    secret_key_nonce: str = field(repr=False)

    def open(self, api_secret_key: SecretBytes) -> Entry:
        """Decrypt with the 32 bytes of ``api_secret_key``.

        :raises DecryptionError: naming the first stage that failed.
        """
        key = api_secret_key.reveal()
        if len(key) != SecretBox.KEY_SIZE:
            raise DecryptionError(Stage.API_SECRET_KEY_FORM)
        wrapped = _unhex(self.secret_key, Stage.ENTRY_KEY_ENCODING)
        nonce = _unhex(self.secret_key_nonce, Stage.ENTRY_KEY_NONCE_ENCODING)
        _check_nonce(nonce, Stage.ENTRY_KEY_NONCE_LENGTH)
        entry_key = _unseal(key, wrapped, nonce, Stage.ENTRY_KEY_AUTHENTICATION)
        if _ENTRY_KEY.fullmatch(entry_key) is None:
            raise DecryptionError(Stage.ENTRY_KEY_FORM)
        data = _unhex(self.data, Stage.DATA_ENCODING)
        nonce = _unhex(self.data_nonce, Stage.DATA_NONCE_ENCODING)
        _check_nonce(nonce, Stage.DATA_NONCE_LENGTH)
        return Entry.parse(_unseal(unhexlify(entry_key), data, nonce, Stage.DATA_AUTHENTICATION))


def _unhex(text: str, stage: Stage) -> bytes:
    try:
        return unhexlify(text)
    except ValueError:
        pass  # raised below, outside: no other exception travels along
    raise DecryptionError(stage)


def _check_nonce(nonce: bytes, stage: Stage) -> None:
    if len(nonce) != SecretBox.NONCE_SIZE:
        raise DecryptionError(stage)


def _unseal(key: bytes, ciphertext: bytes, nonce: bytes, stage: Stage) -> bytes:
    if len(ciphertext) >= SecretBox.MACBYTES:
        try:
            return SecretBox(key).decrypt(ciphertext, nonce)
        except CryptoError:
            pass
    raise DecryptionError(stage)
