"""Lines of an export: told apart from other files, and blamed by their member."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault.storage.v1 import storage_pb2
from hippovault_chassis import record_lines
from hippovault_chassis.errors import ServiceError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
MEMORIES = st.builds(
    memory_pb2.Memory,
    content=TEXTS,
    tags=st.lists(TEXTS),
    hints=st.lists(TEXTS),
    metadata=TEXTS,
    importance=FLOATS | st.none(),
    surprise=st.builds(memory_pb2.Surprise, score=FLOATS) | st.none(),
    version=st.integers(0, 2**31 - 1),
)
RECORDS = st.builds(
    pb.MemoryRecord,
    memory=MEMORIES,
    history=st.lists(st.builds(memory_pb2.MemoryVersion, memory=MEMORIES), max_size=3),
    vectors=st.binary(),
    token_codes=st.builds(storage_pb2.TokenCodes, encoding=TEXTS, codes=st.binary()) | st.none(),
)


@given(RECORDS)
def test_a_line_gives_its_record_back(record: pb.MemoryRecord) -> None:
    line = record_lines.line(record)
    assert "\n" not in line
    assert record_lines.record(line.encode()) == record


def test_a_line_has_no_ids() -> None:
    version = memory_pb2.MemoryVersion(memory=memory_pb2.Memory(id=7, content="old"))
    record = pb.MemoryRecord(memory=memory_pb2.Memory(id=7, content="new"), history=[version])
    assert json.loads(record_lines.line(record)) == {
        "memory": {"content": "new"},
        "history": [{"memory": {"content": "old"}}],
    }


def test_a_header_is_known() -> None:
    assert record_lines.is_header(record_lines.header().encode())
    for line in (
        b"",
        b"[1]",
        b"{",
        b'{"content":"hippovault-memories"}',
        b'{"format":"else","version":1}',
        b"\xff\xfe",
        b"[" * 100_000,
    ):
        assert not record_lines.is_header(line)


def test_a_newer_form_is_refused() -> None:
    with pytest.raises(ServiceError, match="version 2"):
        record_lines.is_header(b'{"format":"hippovault-memories","version":2}')


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (b"{", "line"),
        (b"[" * 100_000, "line"),
        (b"[1]", "line"),
        (b"{" + b" " * record_lines.MAX_BYTES + b"}", "line"),
        (b'{"memory":{"content":"' + b"x" * record_lines.MAX_RECORD_BYTES + b'"}}', "line"),
        (b'{"memory":{"bogus":"secret"}}', "memory.bogus"),
        (b'{"memory":{"version":"secret"}}', "memory.version"),
        (b'{"memory":{"tags":"secret"}}', "memory.tags"),
        (b'{"history":[{"memory":{"content":5}}]}', "history.memory.content"),
        (b'{"since":"secret"}', "since"),
        (b'{"memory":"secret"}', "memory"),
        (b'{"\\ud800":"secret"}', "line"),
        (b'{"memory":{"secret\\ud800":"secret"}}', "line"),
        (b'{"memory":{"content":"\\ud800"}}', "memory.content"),
        (b'{"memory":{"version":1e400}}', "memory.version"),
        (b'{"memory":{"importance":1e400}}', "memory"),
    ],
)
def test_what_is_wrong_is_told_by_its_member_and_without_its_value(text: bytes, field: str) -> None:
    with pytest.raises(ServiceError) as caught:
        record_lines.record(text)
    assert caught.value.field == field
    assert "secret" not in caught.value.message
