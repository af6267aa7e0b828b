"""Fixtures for every room."""

from __future__ import annotations

import asyncio

from tests.controlplane_fixture import _control_plane

__all__ = ["_control_plane"]

# On Python 3.11 to 3.13 the asyncio plugin asks for the current loop before it sets its own, which makes one
# that nobody closes; its ResourceWarning then fails whatever test the garbage collector runs in. With the
# current loop set to none there is none to make.
asyncio.set_event_loop(None)
