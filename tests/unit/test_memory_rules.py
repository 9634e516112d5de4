"""The one validator: each limit at its edge, and no text in a message."""

from __future__ import annotations

import sys
import timeit
import unicodedata

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from hippovault.memory.v1 import memory_pb2
from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError


def refusal(**fields: object) -> ServiceError:
    memory = memory_pb2.Memory(**{"content": "fine", **fields})  # type: ignore[arg-type]
    with pytest.raises(ServiceError) as caught:
        memory_rules.normalise(memory)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    return caught.value


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("content", {"content": ""}),
        ("content", {"content": "   \n\t "}),
        ("content", {"content": "\u200b\u2060"}),
        ("content", {"content": "a\x00b"}),
        ("content", {"content": "a\x1b[31mb"}),
        ("content", {"content": "a\x7fb"}),
        ("content", {"content": "x" * 65_537}),
        ("content", {"content": "語" * 21_846}),
        ("namespace", {"namespace": "a\nb"}),
        ("namespace", {"namespace": "n" * 257}),
        ("category", {"category": "c" * 257}),
        ("category", {"category": "c\nd"}),
        ("key", {"key": "k\t2"}),
        ("memory_type", {"memory_type": "t" * 257}),
        ("tags[1]", {"tags": ["ok", "  "]}),
        ("tags[0]", {"tags": ["a,b"]}),
        ("tags[0]", {"tags": ["t" * 129]}),
        ("tags[0]", {"tags": ["a\x01"]}),
        ("tags", {"tags": [str(number) for number in range(33)]}),
        ("hints", {"hints": ["a", "b", "c", "d"]}),
        ("hints[0]", {"hints": ["   "]}),
        ("hints[1]", {"hints": ["ok", "h" * 201]}),
        ("hints[0]", {"hints": ["語" * 67]}),
        ("hints[0]", {"hints": ["a\nb"]}),
        ("importance", {"importance": 1.01}),
        ("importance", {"importance": float("nan")}),
        ("metadata", {"metadata": "[]"}),
        ("metadata", {"metadata": "{"}),
        ("metadata", {"metadata": '{"a":NaN}'}),
        ("metadata", {"metadata": '{"a":[-1e999]}'}),
        ("metadata", {"metadata": "[" * 10_000}),
        ("metadata", {"metadata": '{"a":' * 65 + "1" + "}" * 65}),
        ("metadata", {"metadata": '{"a":["\\ud800"]}'}),
        ("metadata", {"metadata": '{"\\udfff":1}'}),
        ("metadata", {"metadata": '{"a":"' + "x" * 16_384 + '"}'}),
        ("created_at", {"created_at": Timestamp(seconds=10**12)}),
    ],
)
def test_what_a_memory_may_not_be(field: str, fields: dict[str, object]) -> None:
    error = refusal(**fields)
    assert error.field == field
    assert error.message.startswith(f"{field}: ")


def test_the_edges_pass_and_names_are_trimmed() -> None:
    memory = memory_pb2.Memory(
        content="x" * 65_536,
        tags=[" a ", "a", "t" * 128, *(str(number) for number in range(30))],
        hints=[" h ", "h" * 200],
        category=" c ",
        key=" k ",
        importance=1.0,
    )
    memory_rules.normalise(memory)
    assert (memory.namespace, memory.category, memory.key) == ("default", "c", "k")
    assert len(memory.tags) == 32
    assert memory.tags[0] == "a"
    assert list(memory.hints) == ["h", "h" * 200]


def test_an_update_is_checked_in_the_fields_that_it_names_alone() -> None:
    memory = memory_pb2.Memory(content="x\x00", tags=[" a ", "a"], status=" open ", importance=2)
    memory_rules.update(memory, FieldMask(paths=["tags", "status", "key"]))
    assert (list(memory.tags), memory.status, memory.key, memory.content) == (["a"], "open", "", "x\x00")


@pytest.mark.parametrize(
    ("field", "paths", "fields"),
    [
        ("update_mask", [], {"content": "fine"}),
        ("update_mask.paths[1]", ["content", "id"], {"content": "fine"}),
        ("update_mask.paths[0]", ["surprise"], {}),
        ("update_mask.paths[0]", ["namespace"], {}),
        ("update_mask.paths[0]", ["metadata.a"], {}),
        ("content", ["content"], {}),
        ("content", ["tags", "content"], {"content": "x" * 65_537}),
        ("tags[0]", ["tags"], {"tags": [" "]}),
        ("hints", ["hints"], {"hints": ["a", "b", "c", "d"]}),
        ("importance", ["importance"], {"importance": -0.1}),
        ("metadata", ["metadata"], {"metadata": "[]"}),
        ("status", ["status"], {"status": "a\nb"}),
        ("created_at", ["created_at"], {}),
        ("created_at", ["created_at"], {"created_at": Timestamp(seconds=10**12)}),
    ],
)
def test_what_an_update_may_not_be(field: str, paths: list[str], fields: dict[str, object]) -> None:
    memory = memory_pb2.Memory(**fields)  # type: ignore[arg-type]
    with pytest.raises(ServiceError) as caught:
        memory_rules.update(memory, FieldMask(paths=paths))
    assert (caught.value.code, caught.value.field) == (grpc.StatusCode.INVALID_ARGUMENT, field)


def test_a_category_needs_no_key() -> None:
    memory = memory_pb2.Memory(content="fine", category=" c ")
    memory_rules.normalise(memory)
    assert (memory.category, memory.key) == ("c", "")


def test_content_stays_byte_for_byte() -> None:
    text = "  Set PASSWORD\tto\r\nAlpha \u00e9 e\u0301 "
    memory = memory_pb2.Memory(content=text)
    memory_rules.normalise(memory)
    assert memory.content == text


def test_a_message_never_tells_the_text() -> None:
    assert "secret" not in refusal(content="secret\x00").message
    assert "secret" not in refusal(tags=["secret,word"]).message
    assert "secret" not in refusal(metadata='"secret"').message


def test_control_characters_are_unicodes_and_are_told_with_their_place() -> None:
    controls = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == "Cc"]
    for control in controls:
        if control not in memory_rules.LINE_CONTROLS:
            message = refusal(content=f"\n語{control}").message
            assert message.endswith(f"control characters, has U+{ord(control):04X} at position 2")
        assert refusal(tags=[f"語{control}."]).message.endswith(f"U+{ord(control):04X} at position 1")


def test_the_longest_content_is_checked_in_no_time() -> None:
    content = "All of it is visible. " * 2_978
    check = timeit.Timer(lambda: memory_rules.text("content", content, 65_536, allowed=memory_rules.LINE_CONTROLS))
    assert min(check.repeat(20, 1)) < 0.002


def test_the_names_of_a_filter_are_trimmed_as_the_stored_ones_are() -> None:
    wanted = memory_pb2.Filter(
        tags_any=[" a "], tags_all=["b\n"], memory_types=[" decision", "note "], categories=["\thost"]
    )
    memory_rules.search_filter(wanted)
    assert list(wanted.tags_any) + list(wanted.tags_all) == ["a", "b"]
    assert list(wanted.memory_types) == ["decision", "note"]
    assert list(wanted.categories) == ["host"]


@pytest.mark.parametrize("field", ["memory_types", "categories"])
@pytest.mark.parametrize(("names", "blamed"), [(["a", " "], "[1]"), (["a\x00"], "[0]"), (["a"] * 33, "")])
def test_what_the_names_of_a_filter_may_not_be(field: str, names: list[str], blamed: str) -> None:
    wanted = memory_pb2.Filter()
    getattr(wanted, field)[:] = names
    with pytest.raises(ServiceError) as caught:
        memory_rules.search_filter(wanted)
    assert caught.value.field == f"filter.{field}{blamed}"


@given(st.text(max_size=50))
def test_any_text_passes_or_is_refused_by_name(text: str) -> None:
    try:
        memory_rules.text("content", text, 100, allowed=memory_rules.LINE_CONTROLS)
        field = ""
    except ServiceError as error:
        field = error.field
    well_formed = text.isprintable() and bool(text.strip()) and len(text.encode()) <= 100
    assert field in {"", "content"}
    assert not (well_formed and field)
