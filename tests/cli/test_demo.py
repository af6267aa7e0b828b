"""The demo tells only what happened."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from psono_operator.cli import demo as demo_module
from psono_operator.cli.demo import demo


def test_the_demo_ends_by_itself_with_0_and_tells_the_story() -> None:
    begun = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "psono_operator", "demo"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert time.monotonic() - begun < 20
    assert ended.stderr == ""
    for title in ("becomes a Secret", "is rotated", "deletes the Secret", "goes wrong", "is deleted"):
        assert title in ended.stdout
    assert re.search(r"^   NAME +READY +TARGET +LAST SYNC +AGE$", ended.stdout, re.MULTILINE)
    assert "a-first-password" not in ended.stdout
    assert "a-second-password" not in ended.stdout


class Idle:
    """An operator that does nothing at all."""

    def __init__(self, *_: Any, **__: Any) -> None:
        import asyncio

        self._stop = asyncio.Event()

    async def run(self) -> int:
        await self._stop.wait()
        return 0

    def stop(self) -> None:
        self._stop.set()


def test_the_demo_fails_when_the_operator_does_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_module, "Operator", Idle)
    monkeypatch.setattr("psono_operator.cli.stage.PATIENCE", 0.2)
    assert demo(keep=False) == 1
    assert "The demo failed: not seen within" in capsys.readouterr().out


def test_keep_stays_up_prints_a_kubeconfig_and_ends_cleanly() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "psono_operator", "demo", "--keep"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("Psono: "):
                break
        found = re.search(r"export KUBECONFIG=(\S+)", said)
        assert found, said
        assert Path(found[1]).is_file()
        assert "kubectl -n production get psonosecrets" in said
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
        assert not Path(found[1]).exists()
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
