"""Surprise and its boost through the real three processes, by both versions of the rule."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceStub
from hippovault.storage.v1 import storage_pb2
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from hippovault_chassis import channels
from hippovault_gateway import ranking
from hippovault_gateway.clients import STORAGE_SERVICE
from hippovault_gateway.servicer import NAME
from support.processes import start
from support.stack import Stack

SECONDS = 60
DECISION = "Decision on payment of suppliers: they are paid on Fridays, in euros, once two people have signed"
CHATS = [f"suppliers asked about their payment, note {number}" for number in range(12)]
QUERY = "payment of suppliers asked about"


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Iterator[MemoryServiceStub]:
    with stack.client() as client:
        yield client


@pytest.fixture(scope="module")
def published(stack: Stack) -> Iterator[MemoryServiceStub]:
    """A second gateway before the same store, which goes by version 1."""
    address = f"unix:{stack.home.parent}/v1.sock"
    variables = {
        "HIPPOVAULT_GATEWAY_LISTEN": address,
        "HIPPOVAULT_GATEWAY_STORAGE": f"unix:{stack.home}/run/storage.sock",
        "HIPPOVAULT_GATEWAY_EMBEDDING": f"unix:{stack.home}/run/embedding.sock",
        "HIPPOVAULT_GATEWAY_HTTP": "off",
        "HIPPOVAULT_GATEWAY_SURPRISE_VERSION": "1",
    }
    process = start(["hippovault_gateway"], stack.home.parent / "v1", "v1", variables)
    try:
        with channels.sync(address, NAME, ()) as channel:
            yield MemoryServiceStub(channel)
    finally:
        process.stop()


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    return f"surprise {request.node.name}"


@contextmanager
def storage_of(stack: Stack) -> Iterator[StorageServiceStub]:
    with channels.sync(f"unix:{stack.home}/run/storage.sock", STORAGE_SERVICE, ()) as channel:
        yield StorageServiceStub(channel)


def remember_all(
    gateway: MemoryServiceStub, namespace: str, contents: list[str], importance: float | None = None, age_days: int = 0
) -> list[pb.RememberResponse]:
    created_at = Timestamp()
    created_at.FromDatetime(datetime.now(UTC) - timedelta(days=age_days))
    requests = [
        pb.RememberRequest(namespace=namespace, content=content, importance=importance, created_at=created_at)
        for content in contents
    ]
    results = gateway.BatchRemember(pb.BatchRememberRequest(requests=requests), timeout=SECONDS).results
    return [result.response for result in results]


def recall(
    gateway: MemoryServiceStub, namespace: str, mode: pb.RecallMode.ValueType, *, boost: bool = True
) -> list[pb.Hit]:
    request = pb.RecallRequest(namespace=namespace, query=QUERY, limit=20, mode=mode, no_surprise_boost=not boost)
    return list(gateway.Recall(request, timeout=SECONDS).hits)


def contents(hits: list[pb.Hit]) -> list[str]:
    return [hit.memory.content for hit in hits]


@pytest.mark.parametrize("mode", [pb.RECALL_MODE_DENSE, pb.RECALL_MODE_HYBRID])
@pytest.mark.parametrize("first", [True, False])
def test_what_is_important_among_ordinary_talk_comes_first_whenever_it_was_stored(
    gateway: MemoryServiceStub, namespace: str, mode: pb.RecallMode.ValueType, *, first: bool
) -> None:
    if first:
        remember_all(gateway, namespace, [DECISION], importance=1.0)
    remember_all(gateway, namespace, CHATS)
    if not first:
        remember_all(gateway, namespace, [DECISION], importance=1.0)
    plain, boosted = (contents(recall(gateway, namespace, mode, boost=boost)) for boost in (False, True))
    assert plain.index(DECISION) > 0
    assert boosted == [DECISION, *(content for content in plain if content != DECISION)]


@pytest.mark.parametrize("mode", [pb.RECALL_MODE_DENSE, pb.RECALL_MODE_KEYWORD, pb.RECALL_MODE_HYBRID])
@pytest.mark.parametrize("importance", [None, 1.0])
def test_where_nothing_stands_out_the_order_is_that_of_relevance(
    gateway: MemoryServiceStub, namespace: str, mode: pb.RecallMode.ValueType, importance: float | None
) -> None:
    remember_all(gateway, namespace, [f"{chat} {'again ' * length}" for length, chat in enumerate(CHATS)], importance)
    hits = recall(gateway, namespace, mode)
    assert {hit.salience for hit in hits} == {0}
    assert contents(hits) == contents(recall(gateway, namespace, mode, boost=False))


def test_the_few_that_are_scored_do_not_stand_out_by_it(
    stack: Stack, gateway: MemoryServiceStub, namespace: str
) -> None:
    stored = remember_all(gateway, namespace, CHATS)
    with storage_of(stack) as storage:
        for response in stored[2:]:
            unscore = storage_pb2.UpdateMemoryRequest(
                namespace=namespace,
                ref=memory_pb2.MemoryRef(id=response.memory.id),
                update_mask=FieldMask(paths=["surprise"]),
            )
            assert not storage.UpdateMemory(unscore, timeout=SECONDS).memory.HasField("surprise")
    hits = recall(gateway, namespace, pb.RECALL_MODE_HYBRID)
    assert {hit.salience for hit in hits} == {0}
    assert contents(hits) == contents(recall(gateway, namespace, pb.RECALL_MODE_HYBRID, boost=False))


@pytest.mark.parametrize("mode", [pb.RECALL_MODE_DENSE, pb.RECALL_MODE_KEYWORD, pb.RECALL_MODE_HYBRID])
@pytest.mark.parametrize("version", [1, 2])
def test_every_hit_has_the_parts_of_its_score(
    gateway: MemoryServiceStub,
    published: MemoryServiceStub,
    namespace: str,
    mode: pb.RecallMode.ValueType,
    version: int,
) -> None:
    by_version = published if version == 1 else gateway
    remember_all(by_version, namespace, CHATS[:6])
    remember_all(by_version, namespace, [f"{DECISION}, since suppliers asked about their payment"], 1.0, age_days=45)
    hits = recall(by_version, namespace, mode)
    assert len(hits) == 7
    for hit in hits:
        assert (hit.surprise, hit.memory.surprise.version) == (hit.memory.surprise.score, version)
        counts = hit.surprise * hit.salience
        assert hit.score == pytest.approx(ranking.score(hit.relevance, counts, hit.decay, 0.5))
    saliences = sorted(hit.salience for hit in hits)
    assert saliences == [1] * 7 if version == 1 else (saliences[:6] == [0] * 6 and saliences[6] > 0)


def test_version_1_is_the_published_rule(published: MemoryServiceStub, namespace: str) -> None:
    first, second, third = (
        response.memory.surprise for response in remember_all(published, namespace, [CHATS[0], CHATS[1], DECISION])
    )
    assert first.components.embedding_outlier == 1
    assert second.components.embedding_outlier < third.components.embedding_outlier < 0.5
    for surprise in (first, second, third):
        parts = surprise.components
        expected = 0.6 * parts.embedding_outlier + 0.3 * parts.engagement + 0.1 * parts.explicit
        assert surprise.version == 1
        assert surprise.score == pytest.approx(expected)


def test_a_memory_keeps_the_score_of_the_version_that_scored_it(
    gateway: MemoryServiceStub, published: MemoryServiceStub, namespace: str
) -> None:
    [stored] = remember_all(published, namespace, [DECISION])
    [again] = remember_all(gateway, namespace, [DECISION])
    assert again.memory.id == stored.memory.id
    assert again.memory.surprise == stored.memory.surprise
    assert again.memory.surprise.version == 1
    [hit] = recall(gateway, namespace, pb.RECALL_MODE_DENSE)
    assert hit.surprise == stored.memory.surprise.score
