"""Memories by their names and through time, against the real three processes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceStub
from hippovault_chassis.errors import ServiceError
from support.stack import Stack

SECONDS = 60
Code = grpc.StatusCode
Memory = memory_pb2.Memory
Ref = memory_pb2.MemoryRef


@dataclass
class Memories:
    """One namespace of the running memory."""

    stub: MemoryServiceStub
    namespace: str

    def add(self, content: str, **fields: Any) -> Memory:
        """Remembers."""
        return self.stub.Remember(pb.RememberRequest(namespace=self.namespace, content=content, **fields)).memory

    def get(self, memory_id: int, **fields: Any) -> Memory:
        """One memory."""
        request = pb.GetMemoryRequest(namespace=self.namespace, ref=Ref(id=memory_id), **fields)
        return self.stub.GetMemory(request, timeout=SECONDS).memory

    def listed(self, visibility: memory_pb2.Visibility.ValueType = 0, **conditions: Any) -> list[str]:  # type: ignore[assignment]
        """Contents, newest first."""
        request = pb.ListMemoriesRequest(
            namespace=self.namespace, visibility=visibility, filter=memory_pb2.Filter(**conditions)
        )
        return [memory.content for memory in self.stub.ListMemories(request, timeout=SECONDS).memories]

    def recalled(self, query: str, mode: pb.RecallMode.ValueType = pb.RECALL_MODE_KEYWORD, **fields: Any) -> list[str]:
        """Contents, best first."""
        request = pb.RecallRequest(namespace=self.namespace, query=query, mode=mode, **fields)
        return [hit.memory.content for hit in self.stub.Recall(request, timeout=SECONDS).hits]

    def versions(self, memory_id: int, **fields: Any) -> pb.ListMemoryVersionsResponse:
        """What it is and was."""
        request = pb.ListMemoryVersionsRequest(namespace=self.namespace, ref=Ref(id=memory_id), **fields)
        return self.stub.ListMemoryVersions(request, timeout=SECONDS)

    def update(self, memory_id: int, *cleared: str, **request: Any) -> pb.UpdateMemoryResponse:
        """Sets the fields of `memory` and empties those named."""
        memory = request.pop("memory", Memory())
        paths = [*(field.name for field, _ in memory.ListFields()), *cleared]
        return self.stub.UpdateMemory(
            pb.UpdateMemoryRequest(
                namespace=self.namespace,
                ref=Ref(id=memory_id),
                memory=memory,
                update_mask=FieldMask(paths=paths),
                **request,
            ),
            timeout=SECONDS,
        )

    def forget(self, memory_id: int) -> None:
        """Deletes softly."""
        self.stub.Forget(pb.ForgetRequest(namespace=self.namespace, ref=Ref(id=memory_id)), timeout=SECONDS)

    def undelete(self, memory_id: int, *, dry_run: bool = False) -> pb.UndeleteResponse:
        """Brings back."""
        request = pb.UndeleteRequest(namespace=self.namespace, ref=Ref(id=memory_id), dry_run=dry_run)
        return self.stub.Undelete(request, timeout=SECONDS)

    def purge(self, **request: Any) -> pb.PurgeResponse:
        """Erases."""
        return self.stub.Purge(pb.PurgeRequest(namespace=self.namespace, **request), timeout=SECONDS)


@pytest.fixture(scope="module")
def stub(stack: Stack) -> Iterator[MemoryServiceStub]:
    with stack.client() as client:
        yield client


@pytest.fixture
def memories(stub: MemoryServiceStub) -> Memories:
    return Memories(stub, uuid.uuid4().hex)


def refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """Code and field of the error that a call ends with."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error = ServiceError.from_rpc(caught.value, "gateway")
    return error.code, error.field


def later(moment: Timestamp, microseconds: int = 1) -> Timestamp:
    """A time that much later."""
    result = Timestamp()
    result.FromMicroseconds(moment.ToMicroseconds() + microseconds)
    return result


def test_a_status_is_stored_listed_by_and_recalled_by(memories: Memories) -> None:
    opened = memories.add("The leak in the roof is reported", status=" open ")
    memories.add("The leak in the cellar is repaired", status="done")
    assert opened.status == "open"
    assert memories.get(opened.id).status == "open"
    assert memories.listed(statuses=["open"]) == [opened.content]
    assert memories.listed(statuses=["open", "done", "other"]) == [
        "The leak in the cellar is repaired",
        "The leak in the roof is reported",
    ]
    for mode in (pb.RECALL_MODE_KEYWORD, pb.RECALL_MODE_DENSE, pb.RECALL_MODE_HYBRID):
        assert memories.recalled("leak", mode, filter=memory_pb2.Filter(statuses=["done"])) == [
            "The leak in the cellar is repaired"
        ]


def test_a_list_sees_the_deleted_where_it_is_asked_to(memories: Memories) -> None:
    kept, gone = memories.add("kept"), memories.add("gone")
    memories.forget(gone.id)
    assert memories.listed() == memories.listed(memory_pb2.VISIBILITY_LIVE) == ["kept"]
    assert memories.listed(memory_pb2.VISIBILITY_DELETED) == ["gone"]
    assert memories.listed(memory_pb2.VISIBILITY_ALL) == ["gone", "kept"]
    assert refused(lambda: memories.get(gone.id)) == (Code.NOT_FOUND, "ref.id")
    assert memories.get(gone.id, visibility=memory_pb2.VISIBILITY_DELETED).HasField("deleted_at")
    assert memories.get(kept.id, visibility=memory_pb2.VISIBILITY_ALL) == kept
    assert refused(lambda: memories.get(kept.id, visibility=memory_pb2.VISIBILITY_DELETED))[0] is Code.NOT_FOUND
    assert refused(lambda: memories.listed(99)) == (Code.INVALID_ARGUMENT, "visibility")  # type: ignore[arg-type]
    assert refused(lambda: memories.get(kept.id, visibility=99)) == (Code.INVALID_ARGUMENT, "visibility")


def test_a_memory_is_seen_as_it_was(memories: Memories) -> None:
    first = memories.add("The port is 8080", category="api", key="port", hints=["where does it listen"], tags=["old"])
    second = memories.add("The port is 9090", category="api", key="port", hints=["which port"])
    memories.forget(second.id)
    deleted = memories.get(second.id, visibility=memory_pb2.VISIBILITY_DELETED).deleted_at
    versions = memories.versions(second.id).versions
    born, changed = versions[1].since, versions[0].since
    for moment, content in (
        (born, "The port is 8080"),
        (later(changed, -1), "The port is 8080"),
        (changed, "The port is 9090"),
        (later(deleted, -1), "The port is 9090"),
    ):
        seen = memories.get(first.id, as_of=moment)
        assert (seen.content, list(seen.hints)) == (content, [])
    assert list(memories.get(first.id, as_of=born).tags) == ["old"]
    for moment in (later(born, -1), deleted, later(deleted, 10**12)):
        assert refused(lambda: memories.get(first.id, as_of=moment))[0] is Code.NOT_FOUND  # noqa: B023  # Called at once.
    far = Timestamp(seconds=10**12)
    assert refused(lambda: memories.get(first.id, as_of=far)) == (Code.INVALID_ARGUMENT, "as_of")


def test_versions_come_newest_first_and_page_to_the_end(memories: Memories) -> None:
    for number in range(4):
        memory = memories.add(f"Edition {number}", key="book", hints=[f"hint {number}"])
    whole = memories.versions(memory.id).versions
    assert [one.memory.content for one in whole] == [f"Edition {number}" for number in (3, 2, 1, 0)]
    assert [one.memory.version for one in whole] == [4, 3, 2, 1]
    assert not whole[0].HasField("until")
    assert [one.until for one in whole[1:]] == [one.since for one in whole[:-1]]
    assert not any(one.memory.hints for one in whole)
    seen: list[memory_pb2.MemoryVersion] = []
    token = ""
    while True:
        page = memories.versions(memory.id, page_size=3, page_token=token)
        seen += page.versions
        token = page.next_page_token
        if not token:
            break
    assert seen == list(whole)
    memories.forget(memory.id)
    assert memories.versions(memory.id).versions[0].HasField("until")
    assert refused(lambda: memories.versions(2**62)) == (Code.NOT_FOUND, "ref.id")
    assert refused(lambda: memories.versions(memory.id, page_size=0)) == (Code.INVALID_ARGUMENT, "page_size")
    assert refused(lambda: memories.versions(memory.id, page_token="x")) == (Code.INVALID_ARGUMENT, "page_token")


def test_an_update_sets_what_its_mask_names_and_nothing_else(memories: Memories) -> None:
    before = memories.add(
        "A whole memory", category="c", key="k", tags=["a"], hints=["how whole"], memory_type="fact",
        importance=0.5, metadata='{"n": 1}', status="open",
    )  # fmt: skip
    ignored = Memory(status="done", content="Not in the mask", tags=["b"])
    after = memories.stub.UpdateMemory(
        pb.UpdateMemoryRequest(
            namespace=memories.namespace, ref=Ref(id=before.id), memory=ignored, update_mask=FieldMask(paths=["status"])
        )
    )
    assert (after.changed, after.memory.status, after.memory.version) == (True, "done", 1)
    changed = memories.get(before.id)
    assert after.memory == changed
    expected = Memory()
    expected.CopyFrom(before)
    expected.status = "done"
    expected.updated_at.CopyFrom(changed.updated_at)
    assert changed == expected
    new = Memory(
        category="d", key="l", tags=["x", "x", " y "], memory_type="rule", importance=0.0, metadata='{"m": 2}',
        created_at=Timestamp(seconds=1_000_000),
    )  # fmt: skip
    moved = memories.update(before.id, memory=new).memory
    assert (moved.category, moved.key, moved.memory_type, moved.version) == ("d", "l", "rule", 1)
    assert (list(moved.tags), moved.importance, moved.created_at.seconds) == (["x", "y"], 0, 1_000_000)
    assert moved.HasField("importance")
    metadata = json.loads(moved.metadata)
    assert (metadata.get("m"), metadata.get("n")) == (2, None)
    assert moved.surprise == before.surprise


def test_an_update_to_an_empty_value_clears(memories: Memories) -> None:
    memory = memories.add(
        "Cleared in the end", category="c", key="k", tags=["a"], hints=["zebra"], memory_type="fact",
        importance=0.5, metadata='{"n": 1}', status="open",
    )  # fmt: skip
    fields = ("category", "key", "tags", "hints", "memory_type", "importance", "metadata", "status")
    cleared = memories.update(memory.id, *fields).memory
    assert (cleared.category, cleared.key, cleared.memory_type, cleared.status) == ("", "", "", "")
    assert (list(cleared.tags), list(cleared.hints), cleared.HasField("importance")) == ([], [], False)
    assert "n" not in json.loads(cleared.metadata)
    assert memories.recalled("zebra") == []
    assert memories.update(memory.id, "tags", "status").changed is False


def test_new_content_is_embedded_and_scored_like_a_remembered_one(memories: Memories) -> None:
    memories.add("The cat sleeps on the sofa")
    memory = memories.add("The dog sleeps on the carpet", tags=["pets"], hints=["zebra"])
    updated = memories.update(
        memory.id, memory=Memory(content="Quarterly revenue grew by nine percent", importance=1.0)
    )
    assert (updated.changed, updated.truncated, updated.memory.version) == (True, False, 2)
    assert list(updated.memory.hints) == ["zebra"]
    surprise = updated.memory.surprise
    assert surprise.components.explicit == 1
    assert surprise.components.embedding_outlier != memory.surprise.components.embedding_outlier
    assert json.loads(updated.memory.metadata)["_hippo"]["surprise"]["score"] == pytest.approx(surprise.score)
    assert memories.recalled("carpet") == []
    assert memories.recalled("how is the business doing", pb.RECALL_MODE_DENSE)[0].startswith("Quarterly")
    again = memories.update(memory.id, memory=Memory(content="Quarterly revenue grew by nine percent"))
    assert (again.changed, again.memory.version) == (False, 2)
    assert again.memory.surprise == surprise
    long = memories.update(memory.id, memory=Memory(content="many words " * 600))
    assert (long.windows > 1, long.truncated) == (True, False)


def test_an_update_replaces_hints_without_a_version(memories: Memories) -> None:
    memory = memories.add("It binds to 8443", hints=["what port"])
    updated = memories.update(memory.id, memory=Memory(hints=[" which socket "])).memory
    assert (list(updated.hints), updated.version) == (["which socket"], 1)
    assert updated.updated_at == memory.updated_at
    assert (memories.recalled("port"), memories.recalled("socket")) == ([], ["It binds to 8443"])
    memories.update(memory.id, memory=Memory(status="open"))
    assert memories.recalled("socket") == ["It binds to 8443"]
    assert memories.recalled("which") == memories.recalled("port") == []


def test_an_update_is_refused_where_it_does_not_fit(memories: Memories) -> None:
    memory, other = memories.add("one", key="a"), memories.add("two", key="b")
    status = Memory(status="done")
    assert refused(lambda: memories.update(memory.id, memory=Memory(key="b")))[0] is Code.ALREADY_EXISTS
    assert refused(lambda: memories.update(memory.id, memory=status, expected_version=2))[0] is Code.ABORTED
    assert memories.update(memory.id, memory=status, expected_version=1).changed
    memories.forget(other.id)
    for missing in (other.id, 2**62):
        for new in (status, Memory(content="new")):
            found = refused(lambda: memories.update(missing, memory=new))  # noqa: B023  # Called at once.
            assert found == (Code.NOT_FOUND, "ref.id")


def test_a_rehearsed_update_tells_what_would_be_and_changes_nothing(memories: Memories) -> None:
    memory = memories.add("The first wording", status="open")
    would = memories.update(memory.id, memory=Memory(content="The second wording", status="done"), dry_run=True)
    assert would.changed
    assert (would.memory.content, would.memory.status, would.memory.version) == ("The second wording", "done", 2)
    assert memories.get(memory.id) == memory
    assert len(memories.versions(memory.id).versions) == 1
    assert (memories.recalled("first"), memories.recalled("second")) == (["The first wording"], [])


@pytest.mark.parametrize(
    ("field", "paths", "memory"),
    [
        ("update_mask", [], Memory(content="x")),
        ("update_mask.paths[0]", ["id"], Memory(id=7)),
        ("update_mask.paths[1]", ["tags", "surprise"], Memory()),
        ("content", ["content"], Memory()),
        ("content", ["content"], Memory(content="x" * 65_537)),
        ("tags[0]", ["tags"], Memory(tags=["a,b"])),
        ("hints", ["hints"], Memory(hints=["a", "b", "c", "d"])),
        ("importance", ["importance"], Memory(importance=2)),
        ("metadata", ["metadata"], Memory(metadata="[1]")),
        ("created_at", ["created_at"], Memory()),
        ("status", ["status"], Memory(status="a\x07")),
    ],
)
def test_bad_updates_are_refused_by_field(memories: Memories, field: str, paths: list[str], memory: Memory) -> None:
    stored = memories.add("as it was")
    request = pb.UpdateMemoryRequest(
        namespace=memories.namespace, ref=Ref(id=stored.id), memory=memory, update_mask=FieldMask(paths=paths)
    )
    assert refused(lambda: memories.stub.UpdateMemory(request, timeout=SECONDS)) == (Code.INVALID_ARGUMENT, field)
    request = pb.UpdateMemoryRequest(namespace=memories.namespace, memory=memory, update_mask=FieldMask(paths=paths))
    assert refused(lambda: memories.stub.UpdateMemory(request, timeout=SECONDS)) == (Code.INVALID_ARGUMENT, "ref")
    assert memories.get(stored.id) == stored


def test_an_undeleted_memory_is_as_it_was(memories: Memories) -> None:
    memory = memories.add("Heron is the staging database", tags=["a"], hints=["zebra"], status="open")
    assert refused(lambda: memories.undelete(memory.id)) == (Code.NOT_FOUND, "ref.id")
    memories.forget(memory.id)
    assert (list(memories.undelete(memory.id, dry_run=True).ids), memories.listed()) == ([memory.id], [])
    back = memories.undelete(memory.id)
    assert (list(back.ids), back.dry_run) == ([memory.id], False)
    assert memories.get(memory.id) == memory
    for query in ("heron", "zebra"):
        assert memories.recalled(query) == [memory.content]
    assert memories.recalled("which database", pb.RECALL_MODE_DENSE) == [memory.content]


def test_a_purged_memory_leaves_nothing(memories: Memories) -> None:
    memory = memories.add("The first secret plan", key="plan")
    memories.add("The second secret plan", key="plan")
    would = memories.purge(ref=Ref(id=memory.id), dry_run=True)
    assert (list(would.ids), would.total, would.dry_run) == ([memory.id], 1, True)
    assert memories.recalled("secret") == ["The second secret plan"]
    done = memories.purge(ref=Ref(id=memory.id))
    assert (list(done.ids), done.total, done.dry_run) == ([memory.id], 1, False)
    assert memories.listed(memory_pb2.VISIBILITY_ALL) == memories.recalled("secret") == []
    assert refused(lambda: memories.versions(memory.id))[0] is Code.NOT_FOUND
    assert refused(lambda: memories.purge(ref=Ref(id=memory.id)))[0] is Code.NOT_FOUND
    assert memories.add("The second secret plan", key="plan").id > memory.id


def test_what_was_deleted_before_a_time_is_purged(memories: Memories) -> None:
    first, second, kept = (memories.add(content) for content in ("first", "second", "kept"))
    memories.forget(first.id)
    memories.forget(second.id)
    between = memories.get(second.id, visibility=memory_pb2.VISIBILITY_DELETED).deleted_at
    done = memories.purge(deleted_before=between)
    assert (list(done.ids), done.total) == ([first.id], 1)
    assert memories.listed(memory_pb2.VISIBILITY_ALL) == ["kept", "second"]
    assert memories.purge(deleted_before=between).total == 0
    assert memories.purge(deleted_before=later(between)).total == 1
    assert memories.get(kept.id) == kept
    assert refused(memories.purge) == (Code.INVALID_ARGUMENT, "target")
    far = Timestamp(seconds=10**12)
    assert refused(lambda: memories.purge(deleted_before=far)) == (Code.INVALID_ARGUMENT, "deleted_before")
    assert refused(lambda: memories.purge(ref=Ref())) == (Code.INVALID_ARGUMENT, "ref")
