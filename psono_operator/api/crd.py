"""The CustomResourceDefinition that belongs to this version.

The file has one source, ``chart/crds`` in the repository; an installed package carries a copy made at
build time.
"""

from __future__ import annotations

from pathlib import Path

from psono_operator.api.names import CRD_NAME

_FILE = f"{CRD_NAME}.yaml"


def crd_text() -> str:
    """The CRD as YAML text, byte for byte as in the chart."""
    here = Path(__file__).resolve()
    installed = here.parent / _FILE
    source = installed if installed.is_file() else here.parents[2] / "chart" / "crds" / _FILE
    return source.read_text(encoding="utf-8")
