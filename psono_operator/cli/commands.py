"""From words on the command line to a command that runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from psono_operator import __version__
from psono_operator.api.crd import crd_text
from psono_operator.settings import SettingsError, flag, knobs, resolve, variable

USAGE_ERROR = 2


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage in one line."""

    def error(self, message: str) -> NoReturn:
        command = self.prog.split()[-1] if " " in self.prog else ""
        help_ = " ".join(filter(None, ("psono-operator", command, "--help")))
        print(f"psono-operator: {message}; `{help_}` lists what there is", file=sys.stderr)
        sys.exit(USAGE_ERROR)


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run one command and return the exit code. Wrong usage exits with 2 from inside."""
    options = build_parser().parse_args(arguments)
    match options.command:
        case "crd":
            print(crd_text(), end="")
            return 0
        case "demo":
            from psono_operator.cli.demo import demo  # the sandbox is loaded by nobody else

            return demo(keep=options.keep)
        case "finalize":
            from psono_operator.cli.finalize import Options, finalize

            chosen = Options(
                options.kubeconfig, options.context, options.namespace or (), options.all, options.yes
            )
            return finalize(chosen, environ)
        case "run":
            given = {name: getattr(options, name) for name in knobs()}
            try:
                settings = resolve(given, environ)
            except SettingsError as error:
                print(f"psono-operator: {error}", file=sys.stderr)
                return USAGE_ERROR
            from psono_operator.cli.run import run  # `crd` and `--help` need no HTTP stack

            return run(settings, environ)
    build_parser().print_help()
    return USAGE_ERROR


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="psono-operator",
        description="Copies chosen values out of Psono, a password manager, into Kubernetes Secrets.",
    )
    parser.add_argument("--version", action="version", version=f"psono-operator {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run the operator against a cluster",
        description="Runs the operator until SIGTERM or SIGINT. In a pod no flag is needed.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit codes: 0 stopped cleanly, 1 failed, 2 wrong usage or configuration",
    )
    for name, knob in knobs().items():
        shown = "" if not knob.default else f" (default: {knob.default})"
        text = f"{knob.help}{shown} [{variable(name)}]"
        if knob.is_switch:
            run.add_argument(flag(name), dest=name, action="store_const", const="true", help=text)
        else:
            action = "append" if knob.repeatable else "store"
            run.add_argument(flag(name), dest=name, metavar=knob.metavar, action=action, help=text)
    demo = commands.add_parser(
        "demo",
        help="show the main job with no cluster at all",
        description="Starts a Kubernetes API server and a Psono server in memory, runs the operator against "
        "both, and tells what happens. Nothing leaves this machine.",
    )
    demo.add_argument("--keep", action="store_true", help="stay up and print a KUBECONFIG to play with")
    finalize = commands.add_parser(
        "finalize",
        help="let PsonoSecrets go when the operator is not there to do it",
        description="Removes the operator's marks from Merge targets and its finalizer from PsonoSecrets "
        "that are being deleted, so that they and their namespaces do not wait for an operator that is gone. "
        "Without --yes it only says what it would do.",
    )
    finalize.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig to use")
    finalize.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    finalize.add_argument(
        "--namespace", metavar="NAMESPACE", action="append", help="only this; may be repeated"
    )
    finalize.add_argument("--all", action="store_true", help="also those that are not being deleted")
    finalize.add_argument("--yes", action="store_true", help="do it")
    commands.add_parser(
        "crd",
        help="print the CustomResourceDefinition",
        description="Prints the CustomResourceDefinition of this version, for `kubectl apply -f -`.",
    )
    return parser
