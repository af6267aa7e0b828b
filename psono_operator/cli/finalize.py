"""``psono-operator finalize``: lets PsonoSecrets go when the operator is not there to do it.

A PsonoSecret carries a finalizer, so one that is deleted after the operator was removed waits for ever, and
its namespace with it. This does what the operator would have done: it removes our marks from Merge targets
and then the finalizer. Without ``--yes`` it only says what it would do. Doing it twice does no harm.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from psono_operator.api import names
from psono_operator.runtime.client import KubeClient
from psono_operator.runtime.clock import LoopClock
from psono_operator.runtime.errors import ApiError, ConfigurationError, KubeError, NotFound
from psono_operator.runtime.kubeconfig import discover_credentials
from psono_operator.runtime.resources import KubeObject, Resource, is_deleting, key_of
from psono_operator.runtime.store import Store
from psono_operator.runtime.transforms import metadata_allowlist
from psono_operator.runtime.transport import Transport
from psono_operator.secretsync.cleanup import Cleanup
from psono_operator.secretsync.finalizer import FinalizerRefused, has_finalizer
from psono_operator.secretsync.indexes import SECRET_INDEXES
from psono_operator.secretsync.releaser import ReleaseFailed, Releaser
from psono_operator.secretsync.resources import PSONO_SECRETS, SECRETS

FAILED, CONFIGURATION_ERROR = 1, 2


@dataclass(frozen=True, slots=True)
class Options:
    """What the command was told."""

    kubeconfig: str | None
    context: str | None
    namespaces: Sequence[str]
    """Empty: all."""
    every: bool
    """Also what is not being deleted."""
    yes: bool
    """Do it."""


def finalize(options: Options, environ: Mapping[str, str]) -> int:
    """Release what waits for an operator; the exit code."""
    return asyncio.run(_finalize(options, environ))


async def _finalize(options: Options, environ: Mapping[str, str]) -> int:
    clock = LoopClock()
    try:
        credentials = await discover_credentials(
            clock=clock, environ=environ, kubeconfig=options.kubeconfig, context=options.context
        )
    except ConfigurationError as error:
        print(f"psono-operator: {error}", file=sys.stderr)
        return CONFIGURATION_ERROR
    transport = Transport(credentials, clock=clock)
    try:
        client = KubeClient(transport, field_manager=names.OPERATOR)
        return await _release_all(client, options)
    except NotFound:
        print("nothing to release: the cluster has no PsonoSecrets (no CustomResourceDefinition)")
        return 0
    except KubeError as error:
        print(f"psono-operator: {error}", file=sys.stderr)
        return FAILED
    finally:
        await transport.close()


async def _release_all(client: KubeClient, options: Options) -> int:
    secrets, keep = Store(SECRET_INDEXES), metadata_allowlist([names.ANNOTATION_PREFIX])
    held: list[KubeObject] = []
    for namespace in options.namespaces or (None,):
        async for obj in _listed(client, PSONO_SECRETS, namespace):
            if has_finalizer(obj) and (options.every or is_deleting(obj)):
                held.append(obj)
        async for secret in _listed(client, SECRETS, namespace, metadata_only=True):
            secrets.apply_upsert(keep(secret))
    cleanup = Cleanup(client, Releaser(client), secrets)
    failed = 0
    for obj in sorted(held, key=key_of):
        state = "being deleted" if is_deleting(obj) else "not being deleted"
        if not options.yes:
            print(f"{key_of(obj)} ({state}) would be released")
            continue
        try:
            await cleanup.finalize(obj)
            print(f"{key_of(obj)} ({state}) released")
        except (ReleaseFailed, FinalizerRefused, ApiError) as error:
            failed += 1
            print(f"{key_of(obj)} ({state}) not released: {error}", file=sys.stderr)
    if not held:
        print(
            "nothing to release" + ("" if options.every else "; --all also takes what is not being deleted")
        )
    elif not options.yes:
        print("nothing was changed; --yes does it. Stop the operator first: it puts its finalizer back.")
    return FAILED if failed else 0


async def _listed(
    client: KubeClient, resource: Resource, namespace: str | None, *, metadata_only: bool = False
) -> AsyncIterator[KubeObject]:
    """Every object of a collection, page by page (rule A1)."""
    token: str | None = None
    while True:
        page = await client.list_page(
            resource, namespace=namespace, continue_token=token, metadata_only=metadata_only
        )
        for item in page["items"]:
            yield item
        token = page.get("metadata", {}).get("continue")
        if not token:
            return
