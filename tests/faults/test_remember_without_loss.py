"""Remembering loses nothing: without an embedder it is stored, and completed later; clients at once do it once.

Of an encrypted store, in which nothing of this is different.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceStub
from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1.maintenance_pb2_grpc import MaintenanceServiceStub
from hippovault_chassis import memory_rules
from support.command import in_process
from support.metrics import scrape
from support.processes import environment
from support.stack import Stack, running
from support.storage import database, encrypted, opened
from support.waiting import until

SECONDS = 60
CLIENTS = 10
CREATED, EXISTED = memory_pb2.WRITE_OUTCOME_CREATED, memory_pb2.WRITE_OUTCOME_EXISTED
UNSPECIFIED = memory_pb2.WRITE_OUTCOME_UNSPECIFIED
WITHOUT_TOKENS = "\u0301"
"""An accent on nothing, of which the model sees none."""
HINT, NEARLY_SAME = "who watches the gate at the weekend", 0.99
VAULT, HERON = "The vault is under the stairs", "A heron stands in the shallow water"


@pytest.fixture(scope="module")
def own_stack(module_home: Path) -> Iterator[Stack]:
    variables = {"HIPPOVAULT_HINTS_ENABLED": "1", "HIPPOVAULT_EMBEDDING_METRICS_LISTEN": "127.0.0.1:0"}
    with running(module_home, {**encrypted("values"), **variables}) as stack:
        yield stack


@pytest.fixture
def gateway(own_stack: Stack) -> Iterator[MemoryServiceStub]:
    with own_stack.client() as client:
        yield client


@pytest.fixture(params=["plain", "encrypted"])
def either(request: pytest.FixtureRequest, stack: Stack, own_stack: Stack) -> Iterator[MemoryServiceStub]:
    with (stack if request.param == "plain" else own_stack).client() as client:
        yield client


@pytest.fixture
def namespace() -> str:
    return uuid.uuid4().hex


@contextmanager
def no_embedder(stack: Stack) -> Iterator[None]:
    stack.processes["embedding"].kill()
    try:
        yield
    finally:
        stack.restart("embedding")


def remember(gateway: MemoryServiceStub, namespace: str, content: str, **fields: object) -> pb.RememberResponse:
    request = pb.RememberRequest(namespace=namespace, content=content, **fields)  # type: ignore[arg-type]
    return gateway.Remember(request, timeout=SECONDS)


def update(
    gateway: MemoryServiceStub, namespace: str, memory_id: int, content: str, *hints: str
) -> pb.UpdateMemoryResponse:
    """Gives a memory content or hints."""
    request = pb.UpdateMemoryRequest(
        namespace=namespace,
        ref=memory_pb2.MemoryRef(id=memory_id),
        memory=memory_pb2.Memory(content=content, hints=hints),
        update_mask=FieldMask(paths=["content"] if content else ["hints"]),
        request_id=f"update {memory_id}",
    )
    return gateway.UpdateMemory(request, timeout=SECONDS)


def recalled(
    gateway: MemoryServiceStub, namespace: str, query: str, mode: pb.RecallMode.ValueType = pb.RECALL_MODE_DENSE
) -> dict[str, memory_pb2.Memory]:
    """The memories that a recall finds, by their contents."""
    hits = gateway.Recall(pb.RecallRequest(namespace=namespace, query=query, mode=mode), timeout=SECONDS).hits
    return {hit.memory.content: hit.memory for hit in hits}


def similarity(gateway: MemoryServiceStub, namespace: str, query: str) -> float:
    """Of the nearest memory."""
    request = pb.RecallRequest(namespace=namespace, query=query, mode=pb.RECALL_MODE_DENSE)
    return gateway.Recall(request, timeout=SECONDS).hits[0].cosine_similarity


def pending(gateway: MemoryServiceStub) -> int:
    return gateway.Ping(pb.PingRequest(), timeout=SECONDS).pending_memories


def is_given_up(stack: Stack, gateway: MemoryServiceStub) -> bool:
    """Whether what is left is not embedded again, however often it is looked for while a memory is pending."""

    def embeds() -> float:
        return scrape(stack.processes["embedding"]).value("grpc_server_handled_total", grpc_method="Embed")

    before = embeds()
    for _ in range(20):
        assert pending(gateway) == 1
    return embeds() == before


def test_what_is_remembered_without_an_embedder_is_completed_when_it_is_back(
    own_stack: Stack,
    gateway: MemoryServiceStub,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = in_process(environment(own_stack.home), monkeypatch, capsys)
    changed = remember(gateway, namespace, "It will be another").memory
    hinted = remember(gateway, f"{namespace} of hints", "Rota: Ann on Tuesdays").memory
    before = pending(gateway)
    with no_embedder(own_stack):
        stored = remember(gateway, namespace, VAULT, request_id="r1", tags=["a"])
        assert stored.outcome == CREATED
        assert stored.memory.pending
        assert not stored.memory.HasField("surprise")
        assert (stored.windows, stored.truncated) == (0, False)
        assert remember(gateway, namespace, VAULT, request_id="r1", tags=["a"]) == stored
        items = [pb.RememberRequest(namespace=namespace, content=content) for content in (HERON, " ", VAULT)]
        results = gateway.BatchRemember(pb.BatchRememberRequest(requests=items), timeout=SECONDS).results
        assert results[0].response.memory.pending
        assert results[1].error.field == "content"
        assert results[2].response.outcome == EXISTED
        updated = update(gateway, namespace, changed.id, "Ravens remember faces")
        assert updated.memory.pending
        assert not updated.memory.HasField("surprise")
        assert recalled(gateway, namespace, "vault", pb.RECALL_MODE_HYBRID).keys() == {VAULT}
        assert recalled(gateway, namespace, "ravens", pb.RECALL_MODE_KEYWORD).keys() == {"Ravens remember faces"}
        with_hint = update(gateway, hinted.namespace, hinted.id, "", HINT).memory
        assert (list(with_hint.hints), with_hint.pending) == ([HINT], False)
        assert pending(gateway) == before + 3
        assert run("status")[1]["ping"]["pending_memories"] == before + 3
    code, told = run("reindex")
    assert (code, told["pending"]) == (0, before)
    found = recalled(gateway, namespace, "birds")
    assert found.keys() == {VAULT, HERON, "Ravens remember faces"}
    assert next(iter(found)) != VAULT
    for memory in found.values():
        assert not memory.pending
        assert 0 < memory.surprise.score < 1
        assert memory.model_revision
    until(lambda: similarity(gateway, hinted.namespace, HINT) > NEARLY_SAME)
    assert json.loads(found[VAULT].metadata)["_hippo"]["surprise"]["score"] == found[VAULT].surprise.score


def test_a_killed_gateway_goes_on_and_what_cannot_be_embedded_holds_up_nothing(
    own_stack: Stack, gateway: MemoryServiceStub, namespace: str
) -> None:
    with no_embedder(own_stack):
        remember(gateway, namespace, VAULT)
        take_in_what_is_too_long(own_stack, namespace)
        remember(gateway, namespace, HERON)
        remember(gateway, namespace, WITHOUT_TOKENS, hints=[WITHOUT_TOKENS])
        own_stack.processes["gateway"].kill()
    own_stack.restart("gateway")
    with own_stack.client() as anew:
        until(lambda: pending(anew) == 1)
        assert recalled(anew, namespace, "where is the safe").keys() == {VAULT, HERON, WITHOUT_TOKENS}
        until(lambda: is_given_up(own_stack, anew))
    assert own_stack.processes["gateway"].log.read_text().count("cannot be embedded") == 1


def test_memories_that_come_without_vectors_are_embedded(
    own_stack: Stack,
    gateway: MemoryServiceStub,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = in_process(environment(own_stack.home), monkeypatch, capsys)
    remember(gateway, namespace, HERON, tags=["a"])
    file = tmp_path / "memories.jsonl"
    assert run("export", str(file), "--namespace", namespace, "--without-vectors")[0] == 0
    file.write_text(file.read_text().replace(namespace, f"{namespace} 2"))
    before = pending(gateway)
    assert run("import", str(file))[0] == 0
    assert run("reindex")[1]["pending"] == before
    [found] = recalled(gateway, f"{namespace} 2", "birds").values()
    [original] = recalled(gateway, namespace, "birds").values()
    assert (found.content, list(found.tags), found.surprise) == (HERON, ["a"], original.surprise)


def test_what_is_there_and_cannot_be_read_stops_none_of_the_others(
    own_stack: Stack, gateway: MemoryServiceStub, namespace: str
) -> None:
    damaged = remember(gateway, namespace, VAULT).memory.id
    own_stack.processes["storage"].stop()
    with opened(database(own_stack.home)) as file:
        file.execute("UPDATE memories SET content = 'forged' WHERE id = ?", (damaged,))
    own_stack.restart("storage")
    items = [pb.RememberRequest(namespace=namespace, content=content) for content in ("first", VAULT, "second")]
    batch = gateway.BatchRemember(pb.BatchRememberRequest(requests=items), timeout=SECONDS).results
    messages = (pb.StreamRememberRequest(request=item) for item in items)
    streamed = [answer.result for answer in gateway.StreamRemember(messages, timeout=SECONDS)]
    for results, outcome in ((batch, CREATED), (streamed, EXISTED)):
        assert [result.response.outcome for result in results] == [outcome, UNSPECIFIED, outcome]
        assert results[1].error.reason == "VALUE_NOT_AUTHENTIC"
    gateway.Purge(pb.PurgeRequest(namespace=namespace, ref=memory_pb2.MemoryRef(id=damaged)), timeout=SECONDS)


def take_in_what_is_too_long(stack: Stack, namespace: str) -> None:
    """Another program may have written what no caller could, and an embedder refuses it."""
    memory = memory_pb2.Memory(namespace=namespace, content="7 " * memory_rules.MAX_CONTENT_BYTES)
    memory.created_at.GetCurrentTime()
    record = maintenance_pb2.MemoryRecord(memory=memory)
    with grpc.insecure_channel(f"unix:{stack.home / 'run' / 'storage.sock'}") as channel:
        messages = iter([maintenance_pb2.ImportMemoriesRequest(record=record)])
        told = MaintenanceServiceStub(channel).ImportMemories(messages, timeout=SECONDS)
    assert told.imported == 1


def test_a_repeated_request_needs_no_embedder(own_stack: Stack, gateway: MemoryServiceStub, namespace: str) -> None:
    first = remember(gateway, namespace, VAULT, key="k", request_id="r1")
    changed = update(gateway, namespace, first.memory.id, HERON)
    assert changed.changed
    with no_embedder(own_stack):
        again = remember(gateway, namespace, VAULT, key="k", request_id="r1")
        assert (again.outcome, again.memory) == (first.outcome, changed.memory)
        assert update(gateway, namespace, first.memory.id, HERON).memory == changed.memory
        assert not again.memory.pending


def test_ten_clients_make_one_memory_with_all_tags(either: MemoryServiceStub, namespace: str) -> None:
    def remember(tag: str) -> pb.RememberResponse:
        request = pb.RememberRequest(namespace=namespace, content="The vault is under the stairs", tags=[tag])
        return either.Remember(request, timeout=SECONDS)

    tags = [f"tag {number}" for number in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(remember, tags))
    assert sorted(answer.outcome for answer in answers) == [CREATED, *[EXISTED] * (CLIENTS - 1)]
    [stored] = either.ListMemories(pb.ListMemoriesRequest(namespace=namespace), timeout=SECONDS).memories
    assert sorted(stored.tags) == tags
    assert not stored.pending
    assert all(answer.memory.surprise == stored.surprise for answer in answers)


def test_ten_clients_with_one_request_write_once_and_hear_the_same(either: MemoryServiceStub, namespace: str) -> None:
    request = pb.RememberRequest(namespace=namespace, content="The port is 8080", key="port", request_id="r1")
    with ThreadPoolExecutor(CLIENTS) as pool:
        calling = [pool.submit(either.Remember, request, timeout=SECONDS) for _ in range(CLIENTS)]
        answers = [call.result() for call in calling]
    assert {answer.outcome for answer in answers} == {CREATED}
    assert all(answer.memory == answers[0].memory for answer in answers)
    changed = either.Remember(
        pb.RememberRequest(namespace=namespace, content="The port is 9090", key="port"), timeout=SECONDS
    ).memory
    again = either.Remember(request, timeout=SECONDS)
    assert (again.outcome, again.memory, again.windows) == (CREATED, changed, 0)
