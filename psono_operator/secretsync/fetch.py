"""All entries of one PsonoSecret, each read once (rule J5).

Several reads are under way at a time. After the first failure no further read is started: a dead API key
costs a handful of requests, not one per entry. Which failure is reported depends only on the order of the
mappings, so the same trouble gives the same message (I5). All reads together have one deadline, shorter
than the reconcile's, because a reconcile that is cut off from outside could not say so in a status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from psono_operator.psono.errors import PsonoError
from psono_operator.secretsync.source import SecretSource, SourceBusy, SourceEntry

READS_AT_ONCE = 4
"""Reads of one PsonoSecret under way at the same time; the source has limits of its own."""


READ_BUDGET = 45.0
"""Seconds for all reads of one PsonoSecret."""


class ReadsTooSlow(Exception):
    """Not all entries came in time."""

    def __init__(self, entries: int) -> None:
        super().__init__(
            f"{entries} Psono {'entry' if entries == 1 else 'entries'} could not be read within "
            f"{READ_BUDGET:.0f} s: check the Psono server's load and the network, or spread the mappings "
            "over several PsonoSecrets"
        )


class EntryReadFailed(Exception):
    """One entry could not be read; ``error`` says why."""

    def __init__(self, secret_id: str, error: PsonoError) -> None:
        self.secret_id = secret_id
        self.error = error
        super().__init__(f"entry {secret_id}: {error}")


async def fetch(source: SecretSource, secret_ids: Sequence[str]) -> Mapping[str, SourceEntry]:
    """The entries by id. Raises EntryReadFailed, ReadsTooSlow, and SourceBusy."""
    entries: dict[str, SourceEntry] = {}
    failures: dict[str, PsonoError] = {}
    pending = iter(secret_ids)

    busy = False

    async def reader() -> None:
        nonlocal busy
        for secret_id in pending:  # shared by all readers: each id is taken once
            while secret_id not in entries and secret_id not in failures:
                try:
                    entries[secret_id] = await source.read(secret_id)
                except SourceBusy:
                    if not entries:  # what has been read is not thrown away: then the wait goes on
                        busy = True
                        return
                except PsonoError as error:
                    failures[secret_id] = error
            if failures or busy:
                return

    budget = asyncio.timeout(READ_BUDGET)
    try:
        async with budget:
            if len(secret_ids) == 1:
                await reader()  # the common case needs no task
            else:
                async with asyncio.TaskGroup() as readers:
                    for _ in range(min(READS_AT_ONCE, len(secret_ids))):
                        readers.create_task(reader())
    except TimeoutError:
        if budget.expired() and not failures:
            raise ReadsTooSlow(len(secret_ids)) from None
        if not budget.expired():
            raise
    for secret_id in secret_ids:
        if secret_id in failures:
            raise EntryReadFailed(secret_id, failures[secret_id]) from None
    if busy:
        raise SourceBusy
    return entries
