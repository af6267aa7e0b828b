"""What metrics want to hear of a work queue (rule E8); a protocol, and the observer that hears nothing."""

from __future__ import annotations

from typing import Protocol


class QueueObserver(Protocol):
    """What metrics want to hear (rule E8). Calls must be cheap and must not raise."""

    def added(self) -> None:
        """A key became due that was not due before."""

    def waited(self, seconds: float) -> None:
        """A key was taken ``seconds`` after it became due."""

    def worked(self, seconds: float) -> None:
        """A key was processed for ``seconds``."""

    def retried(self) -> None:
        """A key was scheduled again after a failure."""


class NoQueueObserver:
    """Hears nothing."""

    def added(self) -> None: ...

    def waited(self, seconds: float) -> None: ...

    def worked(self, seconds: float) -> None: ...

    def retried(self) -> None: ...
