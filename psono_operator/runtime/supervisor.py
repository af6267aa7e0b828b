"""All services of the process: started together, stopped in order, and never dead without a sound.

The supervisor owns every long-running task. A service that raises or returns before the stop ends the
process with exit code 1 (rule N1); SIGTERM or SIGINT runs the stop phases in order within one grace budget
and ends with 0; a second signal ends the process at once (rule N2). It knows no service by name: the order
of start, the phases and their budgets are given by whoever wires the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from psono_operator.runtime.clock import Clock
from psono_operator.runtime.tracebacks import one_line

_log = logging.getLogger(__name__)

GRACE = 25.0
"""Seconds from the signal to the exit: below a terminationGracePeriodSeconds of 30."""
CRASH_GRACE = 1.0
"""Seconds that the other services get to end after one has crashed, or after the last stop phase."""


class Service(Protocol):
    """Anything that runs for as long as the process does."""

    @property
    def name(self) -> str:
        """For the log."""

    async def run(self) -> None:
        """Returns only once stopped."""


@dataclass(frozen=True, slots=True)
class StopPhase:
    """One step of an orderly stop: ``action`` is cancelled after ``budget`` seconds, and the next begins."""

    name: str
    action: Callable[[], Awaitable[object]]
    budget: float


class _ServiceEnded(Exception):
    """Already logged; ends the task group."""


def _exit_now(code: int) -> None:
    logging.shutdown()
    os._exit(code)


def exit_on_signals(loop: asyncio.AbstractEventLoop, exit_now: Callable[[int], None] = _exit_now) -> None:
    """Take SIGTERM and SIGINT before there is a supervisor: nothing has begun, so nothing is to be ended.

    As early as possible: process 1 ignores both otherwise (N2). A supervisor takes them over.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, exit_now, 0)


class Supervisor:
    """Runs ``services``, started in this order, until one dies or a stop is requested.

    ``exit_now`` ends the process without further ado. It is the answer to a second signal, and the last
    resort when something that was cancelled does not end.
    """

    def __init__(
        self,
        services: Sequence[Service],
        phases: Sequence[StopPhase] = (),
        *,
        clock: Clock,
        grace: float = GRACE,
        exit_now: Callable[[int], None] = _exit_now,
    ) -> None:
        self._services = tuple(services)
        self._phases = tuple(phases)
        self._clock = clock
        self._grace = grace
        self._exit_now = exit_now
        self._stop = asyncio.Event()
        self._last_resort: asyncio.TimerHandle | None = None
        self._failed = False

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stop.is_set()

    def request_stop(self) -> None:
        """Begin the orderly stop; as good before ``run`` as during it. Again: no effect."""
        self._stop.set()

    def install_signal_handlers(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take SIGTERM and SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.on_signal, number)

    def on_signal(self, number: signal.Signals) -> None:
        """The first signal requests a stop, every further one ends the process with exit code 1."""
        if self.stopping:
            _log.warning("%s again: exiting at once", number.name)
            self._exit_now(1)
            return
        _log.info("%s: stopping", number.name)
        self.request_stop()

    def exit_within(self, seconds: float, code: int) -> None:
        """Let what comes after ``run`` take no longer; a thread that hangs would keep the loop from
        closing.
        """
        asyncio.get_running_loop().call_later(seconds, self._exit_now, code)

    async def run(self) -> int:
        """Run everything to its end; the exit code of the process."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._guard(service)) for service in self._services]
                await self._stop.wait()
                await self._run_phases()
                for task in reversed(tasks):
                    task.cancel()
                self._arm_last_resort(CRASH_GRACE)
        except* _ServiceEnded:
            self._failed = True
        finally:
            if self._last_resort is not None:
                self._last_resort.cancel()
        return 1 if self._failed else 0

    async def _guard(self, service: Service) -> None:
        try:
            await service.run()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._died(service, f"ended: {one_line(error)}")
        except Exception as error:  # noqa: BLE001 - turned into the exit code (rule N1)
            self._died(service, f"failed: {one_line(error)}")
        else:
            if not self.stopping:
                self._died(service, "returned although nobody stopped it")

    def _died(self, service: Service, how: str) -> None:
        self._failed = True
        if self.stopping:
            # The rest of the stop goes on: its later phases must run all the more.
            _log.error("service %s %s, during the stop", service.name, how)
            return
        _log.critical("service %s %s; exiting", service.name, how)
        self._arm_last_resort(CRASH_GRACE)
        raise _ServiceEnded(service.name) from None

    async def _run_phases(self) -> None:
        end = self._clock.monotonic() + self._grace
        self._arm_last_resort(self._grace + CRASH_GRACE)
        for phase in self._phases:
            left = min(phase.budget, end - self._clock.monotonic())
            if left <= 0:
                _log.warning("stop phase %s skipped: the grace budget is used up", phase.name)
                continue
            deadline = asyncio.timeout(left)
            try:
                async with deadline:
                    await phase.action()
            except TimeoutError as error:
                if deadline.expired():
                    _log.warning("stop phase %s took longer than its %.1f s", phase.name, left)
                else:
                    _log.error("stop phase %s failed: %s", phase.name, one_line(error))
            except Exception as error:  # noqa: BLE001 - the next phases matter as much
                _log.error("stop phase %s failed: %s", phase.name, one_line(error))

    def _arm_last_resort(self, seconds: float) -> None:
        if self._last_resort is not None:
            self._last_resort.cancel()
        self._last_resort = asyncio.get_running_loop().call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        _log.critical("something that was cancelled does not end; exiting at once")
        self._exit_now(1)
