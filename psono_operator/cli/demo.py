"""The demo: the main job, told step by step, with no cluster at all.

It ends by itself with 0 when everything it tells has really happened, and with 1 and the name of the step
when something has not. With ``--keep`` both servers and the operator stay up for kubectl.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import random
import signal
import sys
import tempfile
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path

from psono_operator.api.names import FORCE_SYNC_ANNOTATION
from psono_operator.app import Operator
from psono_operator.cli import stage as theatre
from psono_operator.cli.stage import KEYS, NAME, NAMESPACE, DemoFailed, Stage, collection, stage
from psono_operator.runtime.clock import LoopClock
from psono_operator.runtime.kubeconfig import load_kubeconfig
from psono_operator.settings import resolve

_MERGE = "application/merge-patch+json"


def demo(*, keep: bool) -> int:
    """Tell the story; the exit code."""
    logging.basicConfig(level=logging.ERROR, format="operator: %(message)s")
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(_demo(keep=keep))
    return 0


async def _demo(*, keep: bool) -> int:
    with tempfile.TemporaryDirectory(prefix="psono-operator-demo-") as directory:
        async with stage() as on:
            kubeconfig = Path(directory) / "kubeconfig"
            kubeconfig.write_text(json.dumps(on.kube.kubeconfig(on.kube_url), indent=2))
            settings = resolve({"http_address": "127.0.0.1:0", "workers": "4"}, {})
            clock = LoopClock()
            operator = Operator(
                settings,
                await load_kubeconfig([str(kubeconfig)], clock=clock),
                clock=clock,
                rng=random.Random(),
                environ={},
            )
            running = asyncio.create_task(operator.run())
            try:
                return await _play(on, running, kubeconfig, keep=keep)
            except DemoFailed as failure:
                print(f"\nThe demo failed: {failure}.")
                return 1
            finally:
                operator.stop()
                await running


async def _play(on: Stage, running: asyncio.Task[int], kubeconfig: Path, *, keep: bool) -> int:
    for number, (title, step) in enumerate(_STORY, 1):
        print(f"\n{number}. {title}")
        await step(on)
        if running.done():
            raise DemoFailed("the operator ended by itself")
    print("\nEverything above has happened, in memory, on this machine.")
    if keep:
        await _stay(on, kubeconfig)
    else:
        print("Nothing of it remains. Next: `make demo ARGS=--keep` to play with it yourself, `make test`,")
        print("or the README's section on using it with your own cluster.")
    return 0


def _say(text: str) -> None:
    for line in text.splitlines():
        print(f"   {line}".rstrip())


async def _first(on: Stage) -> None:
    _say(f"In Psono there is an Environment Variables entry with {', '.join(KEYS)}.")
    _say("In Kubernetes there are now an authentication Secret with an API key that may read it, and:\n")
    _say(theatre.manifest(theatre.psono_secret(on)))
    await on.call("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", theatre.auth_secret(on))
    await on.call("POST", collection(), theatre.psono_secret(on))


async def _becomes_a_secret(on: Stage) -> None:
    took = await on.until("the PsonoSecret is Ready", lambda: _is_ready(on))
    if await on.secret() != on.values:
        raise DemoFailed("the Secret's values differ from the entry's")
    _say(await on.table())
    _say(f'\nSecret "{NAME}" holds all {len(KEYS)} values, after {took:.2f} s. They were decrypted here:')
    _say("Psono only ever sent ciphertext, one request for the entry.")
    if on.psono.count("read") != 1:
        raise DemoFailed("the entry was not read exactly once")


async def _rotation(on: Stage) -> None:
    on.rotate("DB_PASSWORD", "a-second-password")
    _say("DB_PASSWORD is changed in Psono. The next refresh would bring it within 5m; an annotation")
    _say(
        f"asks for it now:\n\nkubectl -n {NAMESPACE} annotate psonosecret {NAME} {FORCE_SYNC_ANNOTATION}=1\n"
    )
    annotations = {"metadata": {"annotations": {FORCE_SYNC_ANNOTATION: "1"}}}
    await on.call("PATCH", f"{collection()}/{NAME}", annotations, kind=_MERGE)
    took = await on.until("the Secret follows the rotation", lambda: _equals(on))
    _say(f"The Secret has the new value after {took:.2f} s.")


async def _repair(on: Stage) -> None:
    await on.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}")
    _say(f"kubectl -n {NAMESPACE} delete secret {NAME}\n")
    took = await on.until("the deleted Secret is made anew", lambda: _equals(on))
    _say(f"It is back after {took:.2f} s, with all its values.")


async def _trouble(on: Stage) -> None:
    before = await on.secret()
    on.psono.revoke(on.key, on.entry)
    annotations = {"metadata": {"annotations": {FORCE_SYNC_ANNOTATION: "2"}}}
    await on.call("PATCH", f"{collection()}/{NAME}", annotations, kind=_MERGE)
    await on.until("the failure is in the status", lambda: _is_failing(on))
    _say("In Psono the API key loses the entry. The status says so, with what to look at:\n")
    ready = await on.ready()
    _say(textwrap.fill(f"{ready['reason']}: {ready['message']}", 96))
    if await on.secret() != before:
        raise DemoFailed("the Secret changed although the read failed")
    _say("\nThe Secret keeps its last good values. The key gets the entry back:\n")
    on.psono.assign(on.key, on.entry)
    annotations = {"metadata": {"annotations": {FORCE_SYNC_ANNOTATION: "3"}}}
    await on.call("PATCH", f"{collection()}/{NAME}", annotations, kind=_MERGE)
    await on.until("the PsonoSecret is Ready again", lambda: _is_ready(on))
    _say(await on.table())


async def _goodbye(on: Stage) -> None:
    await on.call("DELETE", f"{collection()}/{NAME}")
    _say(f"kubectl -n {NAMESPACE} delete psonosecret {NAME}\n")

    async def gone() -> bool:
        return await on.secret() is None and await on.call("GET", f"{collection()}/{NAME}") is None

    took = await on.until("PsonoSecret and Secret are gone", gone)
    _say(f"The Secret belonged to it and was garbage-collected after {took:.2f} s.")
    if on.psono.forbidden:
        raise DemoFailed("the operator sent Psono something that a mere reader never sends")
    _say(f"Psono saw {on.psono.count('read')} reads in all, and nothing but reads.")


_STORY: tuple[tuple[str, Callable[[Stage], Awaitable[None]]], ...] = (
    ("What there is at the start", _first),
    ("The PsonoSecret becomes a Secret", _becomes_a_secret),
    ("A value is rotated", _rotation),
    ("Somebody deletes the Secret", _repair),
    ("Something goes wrong", _trouble),
    ("The PsonoSecret is deleted", _goodbye),
)


async def _is_ready(on: Stage) -> bool:
    return (await on.ready()).get("status") == "True"


async def _is_failing(on: Stage) -> bool:
    return (await on.ready()).get("status") == "False"


async def _equals(on: Stage) -> bool:
    return await on.secret() == on.values


async def _stay(on: Stage, kubeconfig: Path) -> None:
    """Make the PsonoSecret once more and wait for Ctrl-C; each time a line comes in, rotate a value."""
    await on.call("POST", collection(), theatre.psono_secret(on))
    await on.until("the PsonoSecret is Ready", lambda: _is_ready(on))
    own = kubeconfig.parent / "psonosecret.yaml"
    own.write_text(theatre.manifest(theatre.psono_secret(on)) + "\n")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop.set)
    print("The PsonoSecret has been created again; both servers and the operator stay up until Ctrl-C.")
    print("In another terminal:\n")
    for line in (
        f"export KUBECONFIG={kubeconfig}",
        f"kubectl -n {NAMESPACE} get psonosecrets",
        f"kubectl -n {NAMESPACE} describe psonosecret {NAME}",
        f"kubectl -n {NAMESPACE} get secret {NAME} -o yaml",
        f"kubectl -n {NAMESPACE} annotate psonosecret {NAME} {FORCE_SYNC_ANNOTATION}=$(date +%s) --overwrite",
        f"kubectl -n {NAMESPACE} delete secret {NAME}",
        f"kubectl -n {NAMESPACE} delete psonosecret {NAME}",
        f"kubectl apply -f {own}",
    ):
        print(f"  {line}")
    print("\nPress Enter here to rotate DB_PASSWORD in Psono; the annotation above then brings it at once.")
    print(f"Psono: {on.psono_url}, entry {on.entry}", flush=True)
    rotations = itertools.count(3)

    def rotate() -> None:
        if not sys.stdin.readline():
            loop.remove_reader(sys.stdin.fileno())
            return
        on.rotate("DB_PASSWORD", f"password-number-{next(rotations)}")
        print("DB_PASSWORD has a new value in Psono.", flush=True)

    with contextlib.suppress(OSError, ValueError):  # no terminal, no rotating
        loop.add_reader(sys.stdin.fileno(), rotate)
    await stop.wait()
    print("\nStopped; nothing of it remains.")
