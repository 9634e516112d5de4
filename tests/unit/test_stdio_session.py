"""What the stdio door remembers of a session, and tells the next gateway and the host when one ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippovault_gateway.local.stdio_door import CHUNK_BYTES, END_BYTES, MAX_LINE_BYTES, Lines
from hippovault_gateway.local.stdio_session import RESUMED, TRIES, Session
from hippovault_gateway.mcp import messages

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def line(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def request(request_id: Any, method: str, **params: Any) -> bytes:
    return line({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def answered(request_id: Any) -> bytes:
    return line({"jsonrpc": "2.0", "id": request_id, "result": {"text": "x"}})


def heard(lines: bytes) -> list[Any]:
    return [json.loads(each) for each in lines.splitlines()]


def ids(lines: bytes) -> list[Any]:
    return [message.get("id", message.get("method")) for message in heard(lines)]


@pytest.fixture
def session() -> Session:
    """One whose handshake is made."""
    session = Session()
    session.asked(request(0, "initialize", protocolVersion="2025-11-25") + line(INITIALIZED))
    session.answered(answered(0))
    return session


def test_a_new_gateway_hears_the_handshake_and_the_host_does_not_hear_its_answer(session: Session) -> None:
    handshake, initialized = heard(session.resumption())

    assert handshake["id"] == RESUMED
    assert handshake["params"] == {"protocolVersion": "2025-11-25"}
    assert initialized == INITIALIZED
    assert session.for_host(answered(RESUMED) + answered(1)) == answered(1)
    assert session.for_host(answered(RESUMED)) == b""


def test_a_handshake_without_an_answer_is_made_again_in_the_hosts_name() -> None:
    session = Session()
    session.asked(request("a", "initialize") + line(INITIALIZED) + request(1, "ping"))

    assert session.lost() == b""
    assert ids(session.resumption()) == ["a", "notifications/initialized", 1]


def test_without_a_handshake_nothing_is_said_but_what_is_asked() -> None:
    session = Session()
    session.asked(request(1, "tools/list"))

    assert session.lost() == b""
    assert session.resumption() == request(1, "tools/list")


def test_reads_are_sent_again_and_what_may_have_changed_something_is_refused(session: Session) -> None:
    for request_id, name in enumerate(("hippo_recall", "hippo_remember", "hippo_forget", "unknown"), start=1):
        session.asked(request(request_id, "tools/call", name=name))
    session.asked(request(5, "resources/read"))
    for request_id, arguments in enumerate(({"request_id": "a"}, {"request_id": ""}, ["request_id"]), start=6):
        session.asked(request(request_id, "tools/call", name="hippo_update", arguments=arguments))
    refused = heard(session.lost())

    assert [each["id"] for each in refused] == [2, 3, 4, 7, 8]
    assert {each["error"]["code"] for each in refused} == {-32603}
    assert ids(session.resumption())[2:] == [1, 5, 6]


def test_what_is_answered_or_cancelled_is_not_sent_again(session: Session) -> None:
    session.asked(request(1, "ping") + request("1", "ping") + request('é",', "ping") + request(2, "ping"))
    session.asked(line({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}))
    session.answered(answered(1) + '{"jsonrpc":"2.0","id":"é\\",","error":{}}\n'.encode())

    assert ids(session.resumption())[2:] == ["1"]


def test_a_request_that_ends_every_gateway_is_refused_at_last(session: Session) -> None:
    session.asked(request(1, "ping"))
    for _ in range(TRIES):
        assert session.lost() == b""
        assert 1 in ids(session.resumption())

    assert ids(session.lost()) == [1]
    assert not session.waits()


def test_all_that_waits_is_refused_with_the_reason(session: Session) -> None:
    session.asked(request(1, "ping") + request(2, "tools/call", name="hippo_remember"))
    refused = heard(session.refused("the memory is gone"))

    assert [each["id"] for each in refused] == [1, 2]
    assert refused[0]["error"]["message"] == "Internal error: the memory is gone"
    assert not session.waits()


@pytest.mark.parametrize(
    "text",
    [
        b"junk", b"[]", b"\xff", b"[" * 100_000, b'{"id":1}', b'{"method":"ping"}', b'{"id":true,"method":"ping"}',
        b'{"id":1.5,"method":"ping"}', b'{"id":null,"method":"ping"}', b'{"id":"\\ud83d","method":"ping"}',
        b'{"method":"notifications/cancelled","params":[]}',
        b'{"method":"notifications/cancelled","params":{"requestId":{}}}',
    ],
)  # fmt: skip
def test_what_the_gateway_answers_without_an_id_is_not_waited_for(text: bytes) -> None:
    session = Session()
    session.asked(text + b"\n")

    assert not session.waits()


@given(st.lists(st.binary(max_size=20)), st.integers(1, 7))
def test_lines_are_whole_however_they_come(texts: list[bytes], size: int) -> None:
    sent = b"\n".join(texts)
    lines, got = Lines(), b""
    for start in range(0, len(sent), size):
        whole = lines.add(sent[start : start + size])
        assert whole == b"" or whole.endswith(b"\n")
        got += whole
    last = lines.last()

    assert got + last == sent + (b"" if sent == b"" or sent.endswith(b"\n") else b"\n")


def test_a_line_that_is_too_long_is_cut_so_that_it_is_refused_by_its_id() -> None:
    text = line({"jsonrpc": "2.0", "method": "ping", "params": {"x": "y" * 3 * MAX_LINE_BYTES}, "id": 12})
    lines = Lines()
    whole = b"".join(lines.add(text[start : start + CHUNK_BYTES]) for start in range(0, len(text), CHUNK_BYTES))

    assert MAX_LINE_BYTES < len(whole) <= MAX_LINE_BYTES + CHUNK_BYTES + END_BYTES
    assert messages.too_long(whole[:END_BYTES], whole[-END_BYTES:]).answer.id == 12
