"""``psono-operator run``: the operator as a process."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections.abc import Mapping

from psono_operator import __version__
from psono_operator.app import Operator
from psono_operator.logs import set_up
from psono_operator.psono.errors import ProxySettingsError
from psono_operator.runtime.clock import LoopClock
from psono_operator.runtime.collector import Collector
from psono_operator.runtime.errors import ConfigurationError
from psono_operator.runtime.kubeconfig import discover_credentials
from psono_operator.runtime.supervisor import exit_on_signals
from psono_operator.settings import Settings

log = logging.getLogger(__name__)

CONFIGURATION_ERROR = 2
EXIT_GRACE = 1.0
"""Seconds for the event loop to close once all has been stopped."""


def run(settings: Settings, environ: Mapping[str, str]) -> int:
    """Run until told to stop; the exit code."""
    set_up(settings.log_level, settings.log_format)
    return asyncio.run(_run(settings, environ))


async def _run(settings: Settings, environ: Mapping[str, str]) -> int:
    clock = LoopClock()
    exit_on_signals(asyncio.get_running_loop())
    try:
        credentials = await discover_credentials(
            clock=clock, environ=environ, kubeconfig=settings.kubeconfig, context=settings.context
        )
        operator = Operator(
            settings,
            credentials,
            clock=clock,
            rng=random.SystemRandom(),
            environ=environ,
            collector=Collector(),
        )
    except (ConfigurationError, ProxySettingsError) as error:
        print(f"psono-operator: {error}", file=sys.stderr)
        return CONFIGURATION_ERROR
    operator.supervisor.install_signal_handlers(asyncio.get_running_loop())
    watched = ", ".join(settings.watch_namespace) or "all namespaces"
    log.info("psono-operator %s starts: API server %s, %s", __version__, credentials.endpoint.url, watched)
    code = await operator.run()
    operator.supervisor.exit_within(EXIT_GRACE, code)
    return code
