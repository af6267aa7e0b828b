"""What this machine lacks for the tests, in one line each; with CI=true that is a failure.

`python -m tests.prerequisites` is asked before the tests run; the closing lines of a run come from here too.
"""

from __future__ import annotations

import os
import shutil
import sys

from tests.controlplane.cluster import missing_binaries


def lacking() -> list[str]:
    """What cannot be tested here, and the command that changes it."""
    found = []
    if missing_binaries():
        found.append("no control plane: its tests are skipped; `make control-plane` builds it")
    if shutil.which("openssl") is None:
        found.append("no openssl: the control plane cannot start; `apt-get install openssl`")
    return found


def main() -> int:
    if os.environ.get("CI") != "true":
        return 0
    missing = lacking()
    for line in missing:
        print(f"CI needs every prerequisite: {line}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
