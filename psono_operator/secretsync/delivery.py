"""Puts values into a visit's target, unless the visit is out of date, and says what its owner should know.

A visit takes a while, above all its reads. What it was asked for may have changed by the time it has values:
then it delivers nothing (rules F6, H4); the change has queued the key again. How a target is written is
``writer``'s; what it costs to be wrong about the target's state is not known here.
"""

from __future__ import annotations

from psono_operator.runtime.client import KubeClient
from psono_operator.runtime.resources import KubeObject, generation_of, is_deleting, uid_of
from psono_operator.runtime.store import StoreView
from psono_operator.secretsync.finalizer import Vanished, live
from psono_operator.secretsync.memory import Seen
from psono_operator.secretsync.reporter import Reporter
from psono_operator.secretsync.schedule import PEACEFUL_REPAIRS
from psono_operator.secretsync.target import Wanted
from psono_operator.secretsync.visit import Visit
from psono_operator.secretsync.writer import TargetWriter, WriteResult


class Delivery:
    """The last steps of a synchronization before its status."""

    def __init__(
        self, client: KubeClient, psono_secrets: StoreView, writer: TargetWriter, reporter: Reporter
    ) -> None:
        self._client = client
        self._psono_secrets = psono_secrets
        self._writer = writer
        self._reporter = reporter

    async def check_live(self, visit: Visit) -> KubeObject:
        """The PsonoSecret as it is now, where a target that we knew is gone: its deletion may have begun.

        Raises Vanished when it is not what the visit saw (rule H4).
        """
        obj = await live(self._client, visit.obj)
        _check_same(visit, obj)
        return obj

    async def deliver(
        self, visit: Visit, data: dict[str, bytes], read: KubeObject | None = None
    ) -> WriteResult:
        """Make the target hold ``data``; ``read`` is the target if it was read just now.

        Raises Vanished when the PsonoSecret was changed or deleted meanwhile, and what the writer raises.
        """
        _check_same(visit, self._psono_secrets.get(visit.key))
        target = visit.spec.target
        written = await self._writer.apply(
            Wanted(visit.target_key, target.type, target.creation_policy, visit.claimant, data),
            visit.around,
            believed_absent=visit.cached_target is None,
            read=read,
        )
        if written.dropped:
            note = f'Secret "{target.name}" existed and was taken over; keys dropped: '
            self._reporter.warn(visit.obj, "TargetTakenOver", note + ", ".join(written.dropped))
        if written.taken:
            note = f'Secret "{target.name}" had values of nobody in particular, now replaced, for keys: '
            self._reporter.warn(visit.obj, "KeysTakenOver", note + ", ".join(written.taken))
        return written

    def complain(self, visit: Visit, before: Seen | None, seen: Seen, written: WriteResult) -> None:
        """Somebody and we change the target in turns: say so once, when we begin to wait (fault C3)."""
        if seen.repairs == PEACEFUL_REPAIRS > (before.repairs if before is not None else 0):
            others = f" (field managers: {', '.join(written.managers)})" if written.managers else ""
            note = f'Secret "{visit.target_key.name}" is changed again and again by somebody else{others}; '
            self._reporter.warn(visit.obj, "TargetContested", note + "repairs now wait longer each time")


def _check_same(visit: Visit, now: KubeObject | None) -> None:
    asked = (visit.inputs.uid, visit.inputs.generation)
    if now is None or is_deleting(now) or (uid_of(now), generation_of(now)) != asked:
        raise Vanished
