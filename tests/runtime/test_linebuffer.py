"""B7: framing of the watch stream is ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psono_operator.runtime.errors import ProtocolError
from psono_operator.runtime.linebuffer import LineBuffer, LineTooLong


@given(st.lists(st.binary(min_size=1).filter(lambda line: not {10, 13} & set(line))), st.data())
def test_lines_do_not_depend_on_where_the_stream_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + data.draw(st.sampled_from([b"\n", b"\r\n", b"\n\n"])) for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    buffer, seen = LineBuffer(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        seen += buffer.feed(stream[start:end])
    assert seen == lines
    assert buffer.tail() == b""


def test_a_line_in_chunks_of_one_byte_is_whole_again_even_within_a_character() -> None:
    text = '{"name":"Grüße 🔑"}'.encode()
    buffer = LineBuffer()
    seen = [line for byte in text + b"\r\n" for line in buffer.feed(bytes([byte]))]
    assert seen == [text]


def test_a_line_of_five_mebibytes_is_no_problem() -> None:
    line = b"x" * (5 * 1024 * 1024)
    buffer = LineBuffer()
    seen: list[bytes] = []
    for start in range(0, len(line), 65536):
        seen += buffer.feed(line[start : start + 65536])
    assert seen == []
    assert buffer.feed(b"\nrest") == [line]
    assert buffer.tail() == b"rest"


def test_an_unfinished_line_stays_in_the_tail() -> None:
    buffer = LineBuffer()
    assert buffer.feed(b"one\ntw") == [b"one"]
    assert buffer.tail() == b"tw"


@pytest.mark.parametrize("chunks", [[b"123456"], [b"123", b"456"], [b"1\n123456\n"], [b"1\n2\n123456"]])
def test_a_line_over_the_limit_is_an_error_with_or_without_its_end(chunks: list[bytes]) -> None:
    buffer = LineBuffer(limit=5)
    for chunk in chunks[:-1]:
        buffer.feed(chunk)
    with pytest.raises(LineTooLong, match="longer than 5 bytes"):
        buffer.feed(chunks[-1])
    assert issubclass(LineTooLong, ProtocolError)
