"""Users who do one thing after another to PsonoSecrets, Secrets, Psono and the operator, at random.

Knows what users know: what they wrote. What must hold whenever the operator has come to rest is in
``invariants``.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.behaviour.network import Network
from tests.behaviour.world import AUTH, MERGE, World, mapping

PSONO_SECRETS = ("p0", "p1", "p2", "p3")
TARGETS = ("t0", "t1", "t2")
KEYS = ("K0", "K1", "K2")
VARIABLES = ("V0", "V1", "V2")
FOREIGN = ("F0", "F1")
OTHER_AUTH = "other-credentials"
FINALIZER = "secrets.psono.com/finalizer"


@dataclass(frozen=True, slots=True)
class Farewell:
    """A PsonoSecret somebody deleted."""

    name: str
    uid: str


@dataclass
class Users:
    """Their memory, and the things they do. ``pause`` is how long they rest at most, in seconds."""

    world: World
    rng: random.Random
    pause: float
    entries: dict[str, dict[str, str]] = field(default_factory=dict)
    history: set[str] = field(default_factory=set)
    """Every value that was ever in Psono."""
    foreign: dict[str, dict[str, str]] = field(default_factory=dict)
    """Secret → keys that users wrote into it and nobody may touch."""
    auth_versions: dict[str, str] = field(default_factory=dict)
    auth_used: set[str] = field(default_factory=set)
    """Those that somebody referred to, and nobody had as a target, at the last rest."""
    farewells: list[Farewell] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    network: Network | None = None
    _number: int = 0

    async def begin(self) -> None:
        for _ in range(2):
            entry = self.world.entry()
            self.entries[entry] = {}
            self.rotate(entry)
        await self.world.create_auth(OTHER_AUTH)
        await self.note_auth()
        self.start()

    def start(self) -> None:
        self.world.start()
        assert self.world.operator is not None
        self.network = Network(self.world.operator)

    async def step(self) -> None:
        """One thing, or a few at once."""
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            deed = self.rng.choices(list(DEEDS), list(DEEDS.values()))[0]
            self.told.append(deed.__name__)
            what = await deed(self)
            if what:
                self.told[-1] += f"({what})"
            await self._give_up_what_an_owner_may_take()

    # -- PsonoSecrets -------------------------------------------------------------------------------

    async def create(self) -> str:
        name = self.rng.choice(PSONO_SECRETS)
        if await self.world.psono_secret(name) is not None:
            return await self.remap(name)
        target, policy = self._target(), self.rng.choice(("Owner", "Merge", "Merge"))
        auth = self.rng.choice((AUTH, AUTH, OTHER_AUTH))
        if target == auth:
            target = "t0"
        data = self._mapping()
        await self.world.create(
            "", name=name, target=target, target_options={"creationPolicy": policy}, data=data,
            authentication={"secretRef": {"name": auth}}, refreshInterval="30s",
        )  # fmt: skip
        return f"{name} {policy} {target} {_keys(data)} {auth}"

    async def remap(self, name: str = "") -> str:
        name = name or self.rng.choice(PSONO_SECRETS)
        data = self._mapping()
        await self._change(name, {"data": data})
        return f"{name} {_keys(data)}"

    async def rename(self) -> str:
        name, target = self.rng.choice(PSONO_SECRETS), self.rng.choice(TARGETS)
        await self._change(name, {"target": {"name": target}})
        return f"{name} {target}"

    async def switch(self) -> str:
        name, policy = self.rng.choice(PSONO_SECRETS), self.rng.choice(("Owner", "Merge"))
        target = {"creationPolicy": policy}
        if self.rng.random() < 0.3:
            target["name"] = self.rng.choice(TARGETS)
        await self._change(name, {"target": target})
        return f"{name} {target}"

    async def delete(self) -> str:
        name = self.rng.choice(PSONO_SECRETS)
        obj = await self.world.psono_secret(name)
        if obj is None or "deletionTimestamp" in obj["metadata"]:
            return ""
        propagation = self.rng.choice(("Background", "Background", "Foreground", "Orphan"))
        self.farewells.append(Farewell(name, obj["metadata"]["uid"]))
        await self.world.delete(self.world.psono_secrets_path(name), propagation)
        return f"{name} {propagation}"

    async def force(self) -> str:
        name = self.rng.choice(PSONO_SECRETS)
        if await self.world.psono_secret(name) is None:
            return ""
        self._number += 1
        annotations = {"secrets.psono.com/force-sync": str(self._number)}
        await self._patch(self.world.psono_secrets_path(name), {"metadata": {"annotations": annotations}})
        return name

    # -- Secrets ------------------------------------------------------------------------------------

    async def write_foreign_key(self) -> str:
        name, key = self.rng.choice(TARGETS), self.rng.choice(FOREIGN)
        value = self._value("foreign")
        secret = await self.world.secret(name)
        if secret is None:
            body = {"metadata": {"name": name}, "stringData": {key: value}}
            code, _ = await self.world.call("POST", self.world.secrets_path(), body, ok=False)
            written = code == 201
        else:
            written = await self._patch(self.world.secrets_path(name), {"stringData": {key: value}})
        if written:
            self.foreign.setdefault(name, {})[key] = value
        return f"{name} {key}"

    async def touch_managed_key(self) -> str:
        name, key = self.rng.choice(TARGETS), self.rng.choice(KEYS)
        if await self.world.secret(name) is None:
            return ""
        if self.rng.random() < 0.5:
            body: Any = {"data": {key: None}}
        else:
            body = {"stringData": {key: self._value("edit")}}
        await self._patch(self.world.secrets_path(name), body)
        return f"{name} {key}"

    async def delete_secret(self) -> str:
        name = self.rng.choice(TARGETS)
        await self.world.call("DELETE", self.world.secrets_path(name), ok=False)
        self.foreign.pop(name, None)
        return name

    async def annotate_secret(self) -> str:
        name = self.rng.choice(TARGETS)
        self._number += 1
        note = {"metadata": {"annotations": {"note": str(self._number)}}}
        await self._patch(self.world.secrets_path(name), note)
        return name

    async def rewrite_auth(self) -> str:
        name = self.rng.choice((AUTH, OTHER_AUTH))
        await self.world.call("DELETE", self.world.secrets_path(name), ok=False)
        if self.rng.random() < 0.7:
            await self.world.create_auth(name)
        await self.note_auth()
        return name

    # -- Psono, the operator, time ------------------------------------------------------------------

    async def rotate_some(self) -> str:
        entry = self.rng.choice(list(self.entries))
        self.rotate(entry)
        return entry[:4]

    def rotate(self, entry: str) -> None:
        values = {variable: self._value("value") for variable in VARIABLES}
        self.entries[entry] = values
        self.history |= set(values.values())
        self.world.rotate(entry, **values)

    async def break_psono(self) -> str:
        self.world.psono.heal()
        how = self.rng.choice(("fail", "maintenance", "throttle"))
        if how == "fail":
            self.world.psono.fail(self.rng.choice((400, 500, 502)))
        elif how == "maintenance":
            self.world.psono.maintenance = True
        else:
            self.world.psono.throttle(2, 1)
        return how

    async def heal_psono(self) -> str:
        self.world.psono.heal()
        return ""

    async def restart(self) -> str:
        await self.world.stop()
        self.start()
        return ""

    async def kill(self) -> str:
        await self.world.kill()
        self.start()
        return ""

    async def rest(self) -> str:
        seconds = self.rng.random() * self.pause
        await self.world.clock.sleep(seconds)
        return f"{seconds:.1f}"

    # -- what they know -----------------------------------------------------------------------------

    async def note_auth(self) -> None:
        """The authentication Secrets as users left them."""
        for name in (AUTH, OTHER_AUTH):
            secret = await self.world.secret(name)
            self.auth_versions[name] = secret["metadata"]["resourceVersion"] if secret else ""

    async def _give_up_what_an_owner_may_take(self) -> None:
        """Keys in a Secret that a PsonoSecret owns, or is about to, are documented to go."""
        listed = await self.world.get(self.world.psono_secrets_path())
        for obj in listed["items"]:
            target = obj["spec"]["target"]
            if target["creationPolicy"] == "Owner":
                self.foreign.pop(target["name"], None)
        for name in list(self.foreign):
            secret = await self.world.secret(name)
            if secret is None or secret["metadata"].get("ownerReferences"):
                del self.foreign[name]

    async def _change(self, name: str, spec: Any) -> None:
        await self._patch(self.world.psono_secrets_path(name), {"spec": spec})

    async def _patch(self, path: str, body: Any) -> bool:
        """Whether it was there to be changed: the operator and its users act at the same time."""
        code, answer = await self.world.call("PATCH", path, body, kind=MERGE, ok=False)
        assert code in {200, 404, 422}, answer
        return bool(code == 200)

    def _target(self) -> str:
        return self.rng.choice((*TARGETS, *TARGETS, OTHER_AUTH))

    def _mapping(self) -> list[Any]:
        keys = self.rng.sample(KEYS, self.rng.choice((1, 2)))
        return [mapping(key, self.rng.choice(list(self.entries)), self.rng.choice(VARIABLES)) for key in keys]

    def _value(self, kind: str) -> str:
        self._number += 1
        return f"canary-{kind}-{self._number}"

    def wanted(self, obj: Any) -> dict[str, str]:
        """What the mapping of a PsonoSecret stands for now."""
        return {
            each["secretKey"]: self.entries[each["remoteRef"]["secretId"]][
                each["remoteRef"]["environmentVariable"]
            ]
            for each in obj["spec"]["data"]
        }


def _keys(data: Any) -> str:
    return "+".join(each["secretKey"] for each in data)


Deed = Callable[[Users], Awaitable[str]]
DEEDS: dict[Deed, int] = {
    Users.create: 10, Users.remap: 4, Users.rename: 5, Users.switch: 5, Users.delete: 4, Users.force: 4,
    Users.write_foreign_key: 6, Users.touch_managed_key: 5, Users.delete_secret: 2, Users.annotate_secret: 1,
    Users.rewrite_auth: 1, Users.rotate_some: 4, Users.break_psono: 2, Users.heal_psono: 4, Users.restart: 1,
    Users.kill: 2, Users.rest: 5,
}  # fmt: skip
