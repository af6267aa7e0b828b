"""All values of the target, or none. Pure.

``rendered`` holds the bytes that go into the target; this is one of the two places where a value is revealed.
"""

from __future__ import annotations

from collections.abc import Mapping

from psono_operator.api.names import SECRET_SIZE_LIMIT
from psono_operator.api.spec import Mapped, PsonoSecretSpec
from psono_operator.psono.errors import ExtractionError
from psono_operator.secretsync.source import SourceEntry


class MappingFailed(Exception):
    """A mapping gave no value. Names the key and the selector, never content."""

    def __init__(self, mapped: Mapped, error: ExtractionError) -> None:
        super().__init__(
            f'key "{mapped.secret_key}" has no value in entry {mapped.remote_ref.secret_id}: {error}'
        )


class TooMuchData(Exception):
    """All values together are more than a Secret can hold (rules G6, R5)."""

    def __init__(self, size: int, largest: str) -> None:
        super().__init__(
            f"the values have {size} bytes together and a Secret holds at most {SECRET_SIZE_LIMIT}; "
            f'the largest is key "{largest}": map fewer or smaller values'
        )


def rendered(spec: PsonoSecretSpec, entries: Mapping[str, SourceEntry]) -> dict[str, bytes]:
    """The target's data. Raises MappingFailed for the first mapping that fails, TooMuchData."""
    data: dict[str, bytes] = {}
    for mapped in spec.data:
        try:
            value = entries[mapped.remote_ref.secret_id].select(mapped.remote_ref)
        except ExtractionError as error:
            raise MappingFailed(mapped, error) from None
        data[mapped.secret_key] = value.reveal()
    size = sum(map(len, data.values()))
    if size > SECRET_SIZE_LIMIT:
        raise TooMuchData(size, max(data, key=lambda name: len(data[name])))
    return data
