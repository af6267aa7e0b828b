"""Are the locks what pyproject.toml asks for, complete with hashes and free of host names?

`python -m tests.lockcheck` checks the files as they are, without a network; `--write` resolves anew with uv.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNTIME = ROOT / "requirements.lock"
DEVELOPMENT = ROOT / "requirements-dev.lock"
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)(?: ; [^\\]*)? ?(\\?)$")


def pins(text: str) -> dict[str, str]:
    """Normalised name → version."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _PIN.match(line)
        if match:
            found[_normal(match[1])] = match[2]
    return found


def problems(pyproject: dict[str, object], runtime: str, development: str) -> list[str]:
    """What is wrong with the locks; empty when nothing is."""
    found = []
    for name, text in (("requirements.lock", runtime), ("requirements-dev.lock", development)):
        if re.search(r"https?://", text):
            found.append(f"{name} names a host")
        for block in re.split(r"\n(?=[A-Za-z])", text):
            if _PIN.match(block.splitlines()[0] if block else "") and "--hash=sha256:" not in block:
                found.append(f"{name}: {block.splitlines()[0]} has no hash")
    run, dev = pins(runtime), pins(development)
    for name in sorted(set(run) - set(dev)) + [n for n in run if n in dev and run[n] != dev[n]]:
        found.append(f"requirements-dev.lock differs from requirements.lock in {name}")
    project = pyproject["project"]
    groups = pyproject["dependency-groups"]
    assert isinstance(project, dict)
    assert isinstance(groups, dict)
    for wanted, locked, file in (
        (project["dependencies"], run, "requirements.lock"),
        (groups["dev"], dev, "requirements-dev.lock"),
    ):
        for requirement in wanted:
            name = _normal(re.split(r"[<>=~! ]", requirement)[0])
            if name not in locked:
                found.append(f"{file} lacks {name}: run `make lock`")
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def write() -> None:
    """Resolve both locks with uv, from a throw-away environment."""
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True)
        subprocess.run([f"{directory}/bin/pip", "install", "--quiet", "uv==0.13.9"], check=True)
        options = ["--universal", "--generate-hashes", "--no-header", "--no-emit-index-url", "--quiet"]
        compile_ = [
            f"{directory}/bin/uv",
            "pip",
            "compile",
            "pyproject.toml",
            *options,
            "--no-emit-find-links",
        ]
        subprocess.run([*compile_, "-o", str(RUNTIME)], check=True, cwd=ROOT)
        constraint = ["--group", "dev", "-c", "requirements.lock", "-o", str(DEVELOPMENT)]
        subprocess.run([*compile_, *constraint], check=True, cwd=ROOT)


def main() -> int:
    if "--write" in sys.argv:
        write()
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = problems(pyproject, RUNTIME.read_text(), DEVELOPMENT.read_text())
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
