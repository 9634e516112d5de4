"""How the arguments of tools become requests."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest
from google.protobuf.message import Message

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.arguments import Arguments, RecallArguments
from hippovault_gateway.documents import MODES, parse
from hippovault_gateway.entity_arguments import CLEARABLE, VISIBILITIES, GetArguments, ScanArguments, UpdateArguments
from hippovault_gateway.mcp import tools

TOOLS = tools.of_set("all")


def request(tool: str, **arguments: Any) -> Message:
    return parse(TOOLS[tool].arguments, arguments).request()


def refusal(tool: str, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(ServiceError) as caught:
        request(tool, **arguments)
    assert caught.value.code.name == "INVALID_ARGUMENT"
    return caught.value.field, caught.value.message


def least(tool: str) -> dict[str, Any]:
    """Returns the fewest arguments that a tool can be called with."""
    enough = {"content": "c", "query": "q", "id": 1}
    return {name: value for name, value in enough.items() if name in TOOLS[tool].arguments.model_fields}


def test_absent_arguments_are_left_to_the_application() -> None:
    assert request("hippo_recall", query="q") == pb.RecallRequest(
        query="q", mode=pb.RECALL_MODE_HYBRID, filter=memory_pb2.Filter()
    )
    assert request("hippo_list_recent") == pb.ListMemoriesRequest(filter=memory_pb2.Filter())
    assert request("hippo_session_summary") == pb.SummarizeSessionRequest()


@pytest.mark.parametrize("tool", TOOLS)
def test_null_stands_for_an_argument_that_is_not_given(tool: str) -> None:
    nothing: dict[str, Any] = dict.fromkeys(TOOLS[tool].arguments.model_fields)

    assert request(tool, **(nothing | least(tool))) == request(tool, **least(tool))


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("value", [1, None])
def test_an_unknown_argument_is_refused_by_name(tool: str, value: object) -> None:
    assert refusal(tool, **least(tool), bogus=value) == ("bogus", "bogus: unknown argument")


def test_recall_takes_filters_and_modes() -> None:
    expected = pb.RecallRequest(
        namespace="n",
        query="q",
        limit=3,
        mode=pb.RECALL_MODE_DENSE,
        no_surprise_boost=True,
        oversample_factor=2,
        filter=memory_pb2.Filter(tags_any=["a", "b"], memory_types=["decision"]),
    )

    for mode in ("dense", "semantic"):
        made = request(
            "hippo_recall",
            namespace="n",
            query="q",
            limit=3,
            mode=mode,
            no_surprise_boost=True,
            oversample_factor=2,
            tags="a,b",
            memory_type="decision",
        )
        assert made == expected


@pytest.mark.parametrize("value", [0, -1, 101, 10**9, 10**30])
@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("hippo_recall", "limit"),
        ("hippo_recall", "oversample_factor"),
        ("retrieve_memory", "limit"),
        ("retrieve_memory", "n_results"),
        ("hippo_list_recent", "n"),
        ("hippo_list_recent", "limit"),
        ("list_memories", "page_size"),
    ],
)
def test_a_number_out_of_range_is_named_as_the_caller_named_it(tool: str, name: str, value: int) -> None:
    assert refusal(tool, **(least(tool) | {name: value})) == (name, f"{name}: must be 1 to 100, is {value}")


def test_two_names_of_one_argument_are_refused_together() -> None:
    assert refusal("retrieve_memory", query="q", limit=1, n_results=2)[0] == "n_results"
    assert refusal("hippo_list_recent", n=1, limit=1)[0] == "limit"


@pytest.mark.parametrize("value", ["x", 1.5, [], {}])
def test_a_number_of_another_type_is_refused(value: object) -> None:
    assert refusal("hippo_recall", query="q", limit=value)[0] == "limit"


@pytest.mark.parametrize(
    ("kind", "field", "given", "names"),
    [
        (RecallArguments, "mode", {"query": "q", "mode": "fuzzy"}, MODES),
        (GetArguments, "visibility", {"id": 1, "visibility": "fuzzy"}, VISIBILITIES),
        (ScanArguments, "visibility", {"visibility": "fuzzy"}, VISIBILITIES),
        (UpdateArguments, "clear[1]", {"id": 1, "clear": ["tags", "fuzzy"]}, CLEARABLE),
    ],
)
def test_an_unknown_name_is_refused_with_those_there_are(
    kind: type[Arguments], field: str, given: dict[str, Any], names: Collection[str]
) -> None:
    with pytest.raises(ServiceError) as caught:
        parse(kind, given).request()

    assert caught.value.message == f"{field}: must be one of {', '.join(names)}, is 'fuzzy'"
    assert caught.value.field == field


def test_a_long_name_is_not_repeated_whole() -> None:
    assert len(refusal("hippo_recall", query="q", mode="f" * 10_000)[1]) < 200


def test_forget_takes_each_way_to_name_a_memory() -> None:
    entity = memory_pb2.EntityKey(category="c", key="k")

    assert request("hippo_forget", id=7) == pb.ForgetRequest(ref=memory_pb2.MemoryRef(id=7))
    assert request("hippo_forget", content_hash="ab", dry_run=True) == pb.ForgetRequest(
        ref=memory_pb2.MemoryRef(content_hash="ab"), dry_run=True
    )
    assert request("delete_memory", category="c", key="k") == pb.ForgetRequest(ref=memory_pb2.MemoryRef(entity=entity))


@pytest.mark.parametrize(
    "arguments",
    [{}, {"id": 1, "content_hash": "ab"}, {"id": 1, "key": "k"}, {"content_hash": "ab", "category": "c"}],
)
def test_forget_takes_exactly_one_way(arguments: dict[str, Any]) -> None:
    assert "exactly one" in refusal("hippo_forget", **arguments)[1]


@pytest.mark.parametrize("value", [0, -1, 2**63, 10**30])
def test_an_id_that_no_memory_can_have_is_refused(value: int) -> None:
    assert refusal("hippo_forget", id=value)[0] == "id"


def test_store_memory_reads_tags_and_type_from_metadata() -> None:
    for inner in ("a,b", ["a", "b"]):
        made = request("store_memory", content="c", metadata={"tags": inner, "type": "note", "x": 1})
        assert made == pb.RememberRequest(content="c", tags=["a", "b"], memory_type="note", metadata='{"x":1}')


def test_store_memory_merges_what_is_said_twice() -> None:
    made = request(
        "store_memory",
        content="c",
        tags=["a"],
        memory_type="decision",
        metadata={"tags": "b", "type": "note"},
        client_hostname="laptop",
    )

    assert isinstance(made, pb.RememberRequest)
    assert (list(made.tags), made.memory_type) == (["a", "b"], "decision")
    assert json.loads(made.metadata) == {"type": "note", "hostname": "laptop"}


def test_store_memory_names_what_is_wrong_inside_metadata() -> None:
    assert refusal("store_memory", content="c", metadata={"tags": 5})[0] == "metadata.tags"
    assert refusal("store_memory", content="c", metadata={"type": 5})[0] == "metadata.type"


def test_hippo_remember_leaves_metadata_alone() -> None:
    made = request("hippo_remember", content="c", metadata={"tags": "a"})

    assert made == pb.RememberRequest(content="c", metadata='{"tags":"a"}')


def test_retrieve_memory_takes_n_results() -> None:
    assert request("retrieve_memory", query="q", n_results=3) == request("hippo_recall", query="q", limit=3)


def test_list_memories_counts_pages_from_one() -> None:
    assert request("list_memories") == pb.ListMemoriesRequest(page_size=10, filter=memory_pb2.Filter())
    assert request("list_memories", page=3, page_size=20, tag="a", memory_type="note") == pb.ListMemoriesRequest(
        page_size=20, skip=40, filter=memory_pb2.Filter(tags_any=["a"], memory_types=["note"])
    )


@pytest.mark.parametrize("value", [0, -1, 10**9])
def test_a_page_that_cannot_be_is_refused(value: int) -> None:
    assert refusal("list_memories", page=value)[0] == "page"


@pytest.mark.parametrize(
    ("alias", "tool"),
    [
        ("store_memory", "hippo_remember"),
        ("retrieve_memory", "hippo_recall"),
        ("list_memories", "hippo_list_recent"),
        ("delete_memory", "hippo_forget"),
    ],
)
def test_an_alias_takes_all_that_its_tool_takes(alias: str, tool: str) -> None:
    assert TOOLS[alias].arguments.model_fields.keys() >= TOOLS[tool].arguments.model_fields.keys()


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("hippo_remember", "importance"),
        ("hippo_recall", "limit"),
        ("hippo_recall", "oversample_factor"),
        ("hippo_list_recent", "n"),
        ("hippo_forget", "id"),
        ("hippo_session_summary", "hours"),
        ("retrieve_memory", "n_results"),
        ("list_memories", "page"),
    ],
)
@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_is_no_number(tool: str, name: str, value: object) -> None:
    assert refusal(tool, **(least(tool) | {name: value})) == (name, f"{name}: must not be a boolean")


@pytest.mark.parametrize(("tool", "name"), [("hippo_recall", "no_surprise_boost"), ("hippo_forget", "dry_run")])
@pytest.mark.parametrize("value", ["yes", "true", "", 1, 0, 1.0, [], {}])
def test_only_a_boolean_is_a_boolean(tool: str, name: str, value: object) -> None:
    assert refusal(tool, **least(tool), **{name: value}) == (name, f"{name}: must be true or false")


@pytest.mark.parametrize("value", ["10", 10.0])
def test_a_number_may_be_given_as_text(value: object) -> None:
    assert request("hippo_recall", query="q", limit=value) == request("hippo_recall", query="q", limit=10)
