"""Log lines: text for people, JSON for machines; never a value, never locals (rules F8, N8).

Third-party loggers stay at WARNING whatever our own level: some of them log whole bodies at DEBUG.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from psono_operator.api.conditions import one_line
from psono_operator.runtime.controller import ReconcileLogFilter

OURS = "psono_operator"
_CONTEXT = ("controller", "key", "reconcile_id")


class TextFormatter(logging.Formatter):
    """``2026-12-01T12:00:00.123Z INFO  message [key reconcile-id]``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback's lines if there is one."""
        when = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        context = " ".join(filter(None, (getattr(record, name, "") for name in _CONTEXT[1:])))
        message = one_line(record.getMessage())
        line = f"{when} {record.levelname:<7} {message}" + (f" [{context}]" if context else "")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        entry: dict[str, str] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {name: value for name in _CONTEXT if (value := getattr(record, name, ""))}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def set_up(level: str, form: str) -> None:
    """Log to standard error: our loggers at ``level``, all others from WARNING."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(ReconcileLogFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(OURS).setLevel(level.upper())
