"""The surprise in the metadata: mirrored, never forged, and nothing else touched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippovault.memory.v1 import memory_pb2
from hippovault_chassis.errors import ServiceError
from hippovault_storage import metadata

SURPRISE = memory_pb2.Surprise(
    score=0.1 + 0.2,
    components=memory_pb2.SurpriseComponents(embedding_outlier=1 / 3, engagement=0, explicit=1, prediction_loss=0),
    version=3,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)  # fmt: skip
OBJECTS = st.dictionaries(st.sampled_from(["_hippo", "a", "_hippo2"]), JSON, max_size=3)


@given(OBJECTS, st.sampled_from([SURPRISE, None]))
def test_the_surprise_is_read_back_exactly_and_the_rest_is_kept(
    members: dict[str, Any], surprise: memory_pb2.Surprise | None
) -> None:
    given_text = json.dumps(members)
    text, read = metadata.read(metadata.sealed(given_text, surprise))
    assert read == surprise
    kept = json.loads(text) if text else {}
    assert {k: v for k, v in kept.items() if k != "_hippo"} == {k: v for k, v in members.items() if k != "_hippo"}
    if isinstance(members.get("_hippo"), dict):
        others = {name: value for name, value in members["_hippo"].items() if name != "surprise"}
        assert {name: value for name, value in kept["_hippo"].items() if name != "surprise"} == others


@pytest.mark.parametrize("text", ['{"a":  1.0}', '{"n": 12345678901234567890}', '{"é": "\\u00e9"}'])
def test_metadata_without_our_member_is_kept_byte_for_byte(text: str) -> None:
    assert metadata.sealed(text, None) == text


def test_an_escaped_name_forges_nothing() -> None:
    text = metadata.sealed('{"\\u005fhippo": {"surprise": {"score": 1}}}', None)
    assert metadata.read(text) == (text, None)


def test_a_repeated_name_forges_nothing() -> None:
    text = metadata.sealed('{"_hippo": {"surprise": {"score": 1}}, "_hippo": 5}', None)
    assert json.loads(text, object_pairs_hook=list) == [("_hippo", 5)]


def test_an_escaped_lone_surrogate_survives() -> None:
    text = metadata.sealed('{"a": "\\ud83d"}', SURPRISE)
    assert text.encode()
    assert json.loads(text)["a"] == "\ud83d"


@pytest.mark.parametrize("text", ['{"a": 1e999}', "[1]", "not json"])
@pytest.mark.parametrize("surprise", [SURPRISE, None])
def test_what_is_no_object_is_refused(text: str, surprise: memory_pb2.Surprise | None) -> None:
    with pytest.raises(ServiceError) as refused:
        metadata.sealed(text, surprise)
    assert refused.value.field == "metadata"


@pytest.mark.parametrize("surprise", [SURPRISE, None])
def test_new_metadata_keeps_what_others_keep_under_our_name(surprise: memory_pb2.Surprise | None) -> None:
    stored = '{"gone": 1, "_hippo": {"a": 1, "b": 2, "surprise": {"score": 0.75}}}'
    for given_text, others in (("", {"a": 1, "b": 2}), ('{"_hippo": {"b": 3}}', {"a": 1, "b": 3})):
        text, read = metadata.read(metadata.replaced(stored, given_text, surprise))
        assert read == surprise
        members = json.loads(text)
        assert members.keys() == {"_hippo"}
        assert {name: value for name, value in members["_hippo"].items() if name != "surprise"} == others
    assert metadata.replaced("not json", '{"a":  1}', None) == '{"a":  1}'
    assert metadata.replaced("", "", None) == ""


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{}",
        "null",
        "[1]",
        "not json",
        '"text"',
        "[" * 100_000,
        '{"a": NaN}',
        '{"a": -1e999}',
        f'{{"a": {"9" * 5_000}}}',
    ],
)
def test_what_is_no_object_reads_as_none(text: str | None) -> None:
    assert metadata.read(text) == ("", None)


@pytest.mark.parametrize(
    "stored",
    [
        5,
        {},
        {"surprise": None},
        {"surprise": {}},
        {"surprise": {"score": "high"}},
        {"surprise": {"score": True}},
        {"surprise": {"score": 10**400}},
    ],
)
def test_what_is_no_surprise_reads_as_none(stored: object) -> None:
    assert metadata.read(json.dumps({"_hippo": stored}))[1] is None


def test_another_programs_surprise_is_read_as_far_as_it_goes() -> None:
    stored = {"score": 0.5, "components": {"engagement": 0.25, "explicit": "x"}, "version": "0.5.0"}
    read = metadata.read(json.dumps({"_hippo": {"surprise": stored}}))[1]
    assert read == memory_pb2.Surprise(score=0.5, components=memory_pb2.SurpriseComponents(engagement=0.25))
