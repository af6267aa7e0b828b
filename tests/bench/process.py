"""One measured process: its CPU time and its peak memory, as the kernel counts them (Linux)."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path


class Process:
    """A child process, ended by its own id."""

    def __init__(self, command: list[str]) -> None:
        self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def usage(self) -> tuple[float, float]:
        """CPU seconds so far and the peak of resident memory in MiB."""
        process = Path("/proc") / str(self._child.pid)
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        peak = next(
            line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM")
        )
        return ticks / os.sysconf("SC_CLK_TCK"), int(peak.split()[1]) / 1024

    def wait(self) -> int:
        """The exit code, once it has ended."""
        return self._child.wait()

    def stop(self) -> None:
        """End it and wait."""
        self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
