"""Lines of a JSONL file: numbered, bounded, and blamed by their member."""

from __future__ import annotations

import io

import pytest

from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli import jsonl


def read(text: bytes) -> list[jsonl.Line]:
    return list(jsonl.lines(io.BytesIO(text)))


def test_blank_lines_count_as_lines_and_are_passed_over() -> None:
    lines = read(b'{"content":"a"}\n\n  \t\r\n{"content":"b"}')
    assert [(line.number, line.request().content) for line in lines] == [(1, "a"), (4, "b")]


def test_a_byte_order_mark_and_foreign_line_ends_are_no_part_of_a_line() -> None:
    first, second = read(b'\xef\xbb\xbf{"content":"a"}\r\n{"content":"b"}\r\n')
    assert first.request().content == "a"
    assert second.request().content == "b"


def test_every_member_reaches_the_request() -> None:
    [line] = read(
        b'{"content":"c","namespace":"n","category":"k","key":"y","tags":["t","u"],"hints":["h"],"memory_type":"m",'
        b'"importance":0.5,"metadata":{"a":[1]},"created_at":"2026-01-31T12:00:00Z"}\n'
    )
    request = line.request()
    assert (request.content, request.namespace, request.category, request.key) == ("c", "n", "k", "y")
    assert (list(request.tags), list(request.hints), request.memory_type) == (["t", "u"], ["h"], "m")
    assert (request.importance, request.metadata) == (0.5, '{"a":[1]}')
    assert request.created_at.ToJsonString() == "2026-01-31T12:00:00Z"


def test_a_line_too_long_is_told_and_the_next_one_is_read() -> None:
    long, good = read(b'{"content":"' + b"x" * 3 * jsonl.MAX_LINE_BYTES + b'"}\n{"content":"after"}\n')
    with pytest.raises(ServiceError, match=r"^line: must have at most 1048576 bytes$"):
        long.request()
    assert (good.number, good.request().content) == (2, "after")


def test_the_end_of_the_last_line_is_the_length_of_the_file() -> None:
    text = b'{"content":"' + b"x" * 2 * jsonl.MAX_LINE_BYTES + b'"}\n\n{"content":"after"}'
    assert read(text)[-1].end == len(text)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b"{", "line"),
        (b'"content"', "line"),
        (b"[" * 100_000, "line"),
        (b'{"content":"\xff"}', "line"),
        (b'{"content":' + b"9" * 4000 + b"}", "content"),
        (b"{}", "content"),
        (b'{"content":7}', "content"),
        (b'{"content":"a \\ud83d b"}', "line"),
        (b'{"content":"a","tags":[1]}', "tags[0]"),
        (b'{"content":"a","bogus":1}', "bogus"),
        (b'{"content":"a","importance":"x"}', "importance"),
        (b'{"content":"a","importance":true}', "importance"),
        (b'{"content":"a","metadata":[]}', "metadata"),
        (b'{"content":"a","metadata":{"x":NaN}}', "line"),
        (b'{"content":"a","created_at":"yesterday"}', "created_at"),
    ],
)
def test_what_is_wrong_is_named_without_the_text(line: bytes, field: str) -> None:
    [read_line] = read(line)
    with pytest.raises(ServiceError) as caught:
        read_line.request()
    assert caught.value.field == field
    assert caught.value.message.startswith(f"{field}: ")
    assert len(caught.value.message) < 200


def test_null_metadata_is_none() -> None:
    [line] = read(b'{"content":"c","metadata":null}')
    assert line.request().metadata == ""
