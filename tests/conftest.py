"""Fixtures for every room."""

from __future__ import annotations

from tests.controlplane_fixture import _control_plane

__all__ = ["_control_plane"]
