"""The two resource types the domain works with."""

from __future__ import annotations

from psono_operator.api import names
from psono_operator.runtime.resources import Resource

SECRETS = Resource("", "v1", "secrets", "Secret", sensitive=True)
PSONO_SECRETS = Resource(names.GROUP, names.VERSION, names.PLURAL, names.KIND)
