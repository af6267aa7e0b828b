"""The door: the only place that reads the process's arguments and environment."""

from __future__ import annotations

import os
import sys

from psono_operator.cli.commands import main as run_command


def main() -> None:
    """Run the command line of this process and exit with its code."""
    sys.exit(run_command(sys.argv[1:], os.environ))


if __name__ == "__main__":
    main()
