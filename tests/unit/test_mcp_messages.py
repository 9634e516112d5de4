from __future__ import annotations

import contextlib
import json
from typing import Any

import mcp_types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippovault_gateway.mcp import messages

REQUEST = b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"ping"}}'


def refused(text: bytes) -> tuple[Any, int]:
    with pytest.raises(messages.Refused) as caught:
        messages.read(text)
    return caught.value.answer.id, caught.value.answer.error.code


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (REQUEST, mcp_types.JSONRPCRequest),
        (b'{"jsonrpc":"2.0","id":"a","method":"ping"}', mcp_types.JSONRPCRequest),
        (b'{"jsonrpc":"2.0","method":"notifications/initialized"}', mcp_types.JSONRPCNotification),
        (b'{"jsonrpc":"2.0","id":3,"result":{}}', mcp_types.JSONRPCResponse),
        (b'{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"m"}}', mcp_types.JSONRPCError),
        (b'{"jsonrpc":"2.0","id":3,"method":"m","params":{"a":"\\ud83d\\ude00"}}', mcp_types.JSONRPCRequest),
    ],
)
def test_messages_of_every_kind_enter(text: bytes, kind: type) -> None:
    assert isinstance(messages.read(text), kind)


@pytest.mark.parametrize(
    ("text", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":3,"method":"m","params":{"a":"a \\ud83d b"}}', 3),
        (b'{"jsonrpc":"2.0","id":"x","method":"m","params":{"a":"a \xed\xa0\xbd b"}}', "x"),
        (b'{"jsonrpc":"2.0","id":3,"method":"m","params":{"a":"\xff"}}', 3),
        (b'{"jsonrpc":"2.0","id":3,"method":"m","params":{"a":', 3),
        (b'{"id":3,"method":"m","params":{"a":', 3),
        (b'{"method":"m","params":{"a":"\x00"},"jsonrpc":"2.0","id":3}', 3),
        (b'{"method":"m","params":{"a":' + b"[" * 100_000 + b',"id":"x"}', "x"),
        (b'{"jsonrpc":"2.0","id":3,"method":"m","params":{"a":NaN}}', 3),
        (b'{"jsonrpc":"2.0","id":3,"method":"m","params":{"a":' + b"9" * 5000 + b"}}", 3),
        (b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":"\\ud83d","method":"m"}', None),
        (b'{"jsonrpc":"2.0","method":"m","params":{"id":3,"b":', None),
        (b"\xef\xbb\xbf" + REQUEST, None),
        (b"Content-Length: 12", None),
        (b"\xff\xfe", None),
        (b"[" * 100_000, None),
        (b"", None),
    ],
)
def test_what_is_no_json_is_a_parse_error_with_the_id_that_can_be_found(text: bytes, request_id: object) -> None:
    assert refused(text) == (request_id, mcp_types.PARSE_ERROR)


@pytest.mark.parametrize(
    ("text", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":3,"method":"m","params":[1]}', 3),
        (b'{"jsonrpc":"1.0","id":3,"method":"m"}', 3),
        (b'{"id":3,"method":"m"}', 3),
        (b'{"jsonrpc":"2.0","id":3}', 3),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":[3],"method":"m"}', None),
        (b"[" + REQUEST + b"]", None),
        (b"[]", None),
        (b"null", None),
        (b'"ping"', None),
    ],
)
def test_json_that_is_no_message_is_an_invalid_request(text: bytes, request_id: object) -> None:
    assert refused(text) == (request_id, mcp_types.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("text", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":77,"method":"m","params":{"a":"' + b"x" * 1000 + b'"}}', 77),
        (b'{"method":"m","params":{"a":"' + b"x" * 1000 + b'"},"jsonrpc":"2.0","id":"x9"}\n', "x9"),
        (b'{"method":"m","params":{"a":"' + b"x" * 1000 + b'","id":5}}', None),
    ],
)
def test_the_id_of_a_message_that_is_too_long_is_read_from_its_ends(text: bytes, request_id: object) -> None:
    answer = messages.too_long(text[: messages.END_BYTES], text[-messages.END_BYTES :]).answer

    assert answer.id == request_id
    assert str(messages.MAX_BYTES) in answer.error.message


@given(st.binary(max_size=200))
def test_bytes_are_a_message_or_are_refused(text: bytes) -> None:
    with contextlib.suppress(messages.Refused):
        assert messages.read(text).jsonrpc == "2.0"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.integers(-(10**17), 10**17) | st.text(max_size=20), json_values)
def test_a_request_is_read_or_refused_with_its_id(request_id: int | str, value: object) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": "m", "params": value}).encode()
    read: Any
    try:
        read = messages.read(text)
    except messages.Refused as error:
        read = error.answer
    assert read.id == request_id
