"""Exceptions as one line of text that holds no value.

A log line may name where something broke, never what was in hand: the text of a foreign exception can
quote a secret, a body or a header. So only the type and the frames are printed, without locals, and the
text only of exceptions that are built from an allow-list (rules F8, N8): those of ``runtime.errors`` and
those whose class says ``value_free = True``.
"""

from __future__ import annotations

import traceback
from pathlib import PurePath

from psono_operator.runtime.errors import KubeError

FRAME_LIMIT = 8
"""Innermost frames that are named."""


def summary(error: BaseException) -> str:
    """The type of ``error``, and its text where the class vouches for it."""
    name = type(error).__name__
    if isinstance(error, KubeError) or getattr(type(error), "value_free", False) is True:
        return f"{name}: {error}"
    return name


def one_line(error: BaseException) -> str:
    """``summary`` plus the frames, innermost first, and the causes; for example
    ``KeyError at store.py:40 get < informer.py:12 run``.
    """
    parts: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        parts.append(summary(current) + _frames(current))
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    if isinstance(error, BaseExceptionGroup):
        parts.extend(one_line(inner) for inner in error.exceptions)
    return "; from ".join(parts)


def _frames(error: BaseException) -> str:
    frames = [
        f"{PurePath(frame.f_code.co_filename).name}:{line} {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    return f" at {' < '.join(frames[: -FRAME_LIMIT - 1 : -1])}" if frames else ""
