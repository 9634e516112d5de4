"""Every RPC of MemoryService against the real three processes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceStub
from hippovault_chassis.errors import ServiceError
from hippovault_gateway import ranking
from support.model_folders import TINY_DIMENSIONS, tiny
from support.stack import Stack, running

SECONDS = 60


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Iterator[MemoryServiceStub]:
    with stack.client() as client:
        yield client


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    return f"contract {request.node.name}"


def remember(gateway: MemoryServiceStub, namespace: str, content: str, **fields: object) -> pb.RememberResponse:
    request = pb.RememberRequest(namespace=namespace, content=content, **fields)  # type: ignore[arg-type]
    return gateway.Remember(request, timeout=SECONDS)


def recalled(gateway: MemoryServiceStub, namespace: str, query: str, **fields: object) -> list[str]:
    request = pb.RecallRequest(namespace=namespace, query=query, **fields)  # type: ignore[arg-type]
    return [hit.memory.content for hit in gateway.Recall(request, timeout=SECONDS).hits]


def refused(call: Callable[[], object]) -> ServiceError:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return ServiceError.from_rpc(caught.value, "gateway")


def days_ago(days: float) -> Timestamp:
    moment = Timestamp()
    moment.FromDatetime(datetime.now(UTC) - timedelta(days=days))
    return moment


def test_a_remembered_memory_comes_back_whole(gateway: MemoryServiceStub, namespace: str) -> None:
    created = remember(
        gateway,
        namespace,
        "JWT tokens expire after 24 hours",
        category="auth",
        key="expiry",
        tags=["auth", "decision"],
        hints=["how long is a login valid"],
        memory_type="decision",
        importance=0.8,
        metadata='{"ticket": 7}',
        created_at=days_ago(1),
    )
    assert created.outcome == memory_pb2.WRITE_OUTCOME_CREATED
    memory = created.memory
    assert memory.id > 0
    assert memory.content_hash == hashlib.sha256(memory.content.encode()).hexdigest()
    assert (memory.category, memory.key, memory.memory_type) == ("auth", "expiry", "decision")
    assert list(memory.tags) == ["auth", "decision"]
    assert list(memory.hints) == ["how long is a login valid"]
    assert memory.importance == pytest.approx(0.8)
    assert memory.version == 1
    assert memory.model_revision
    assert abs(memory.created_at.ToSeconds() - days_ago(1).ToSeconds()) < SECONDS
    stored = json.loads(memory.metadata)
    assert stored["ticket"] == 7
    assert stored["_hippo"]["surprise"]["score"] == pytest.approx(memory.surprise.score)
    for ref in (
        memory_pb2.MemoryRef(id=memory.id),
        memory_pb2.MemoryRef(content_hash=memory.content_hash),
        memory_pb2.MemoryRef(entity=memory_pb2.EntityKey(category="auth", key="expiry")),
    ):
        found = gateway.GetMemory(pb.GetMemoryRequest(namespace=namespace, ref=ref), timeout=SECONDS)
        assert found.memory == memory


def test_the_same_content_again_is_the_same_memory_with_merged_tags(gateway: MemoryServiceStub, namespace: str) -> None:
    first = remember(gateway, namespace, "Deploys happen on Tuesdays", tags=["a"], importance=0.9)
    second = remember(gateway, namespace, "Deploys happen on Tuesdays", tags=["b"])
    assert second.outcome == memory_pb2.WRITE_OUTCOME_EXISTED
    assert second.memory.id == first.memory.id
    assert list(second.memory.tags) == ["a", "b"]
    assert second.memory.surprise == first.memory.surprise


def test_identity_is_the_exact_bytes(gateway: MemoryServiceStub, namespace: str) -> None:
    ids = {
        remember(gateway, namespace, text).memory.id for text in ("Set P to Alpha", "set p to alpha", "Set P to Alpha ")
    }
    assert len(ids) == 3


def test_a_key_names_a_memory_through_changes_of_content(gateway: MemoryServiceStub, namespace: str) -> None:
    first = remember(gateway, namespace, "The port is 8080", category="api", key="port")
    second = remember(gateway, namespace, "The port is 9090", category="api", key="port")
    assert second.outcome == memory_pb2.WRITE_OUTCOME_UPDATED
    assert (second.memory.id, second.memory.version) == (first.memory.id, 2)
    assert recalled(gateway, namespace, "port 8080", mode=pb.RECALL_MODE_KEYWORD) == ["The port is 9090"]


def test_a_forgotten_memory_is_gone_and_comes_back_when_remembered(gateway: MemoryServiceStub, namespace: str) -> None:
    memory = remember(gateway, namespace, "The staging database is called heron", tags=["old"]).memory
    ref = memory_pb2.MemoryRef(content_hash=memory.content_hash)
    dry = gateway.Forget(pb.ForgetRequest(namespace=namespace, ref=ref, dry_run=True), timeout=SECONDS)
    assert (list(dry.ids), dry.dry_run) == ([memory.id], True)
    assert recalled(gateway, namespace, "heron")
    gone = gateway.Forget(pb.ForgetRequest(namespace=namespace, ref=ref), timeout=SECONDS)
    assert list(gone.ids) == [memory.id]
    for mode in (pb.RECALL_MODE_DENSE, pb.RECALL_MODE_KEYWORD, pb.RECALL_MODE_HYBRID):
        assert recalled(gateway, namespace, "staging database heron", mode=mode) == []
    again = refused(lambda: gateway.Forget(pb.ForgetRequest(namespace=namespace, ref=ref), timeout=SECONDS))
    assert (again.code, again.field) == (grpc.StatusCode.NOT_FOUND, "ref.content_hash")
    back = remember(gateway, namespace, "The staging database is called heron", tags=["new"])
    assert back.outcome == memory_pb2.WRITE_OUTCOME_REVIVED
    assert list(back.memory.tags) == ["new"]
    assert recalled(gateway, namespace, "heron") == ["The staging database is called heron"]


def test_namespaces_do_not_see_each_other(gateway: MemoryServiceStub, namespace: str) -> None:
    here, there = namespace, f"{namespace} other"
    mine = remember(gateway, here, "Shared words about otters").memory
    theirs = remember(gateway, there, "Shared words about otters").memory
    assert mine.id != theirs.id
    gateway.Forget(pb.ForgetRequest(namespace=here, ref=memory_pb2.MemoryRef(id=mine.id)), timeout=SECONDS)
    assert recalled(gateway, here, "otters") == []
    assert recalled(gateway, there, "otters") == ["Shared words about otters"]
    stolen = pb.GetMemoryRequest(namespace=here, ref=memory_pb2.MemoryRef(id=theirs.id))
    assert refused(lambda: gateway.GetMemory(stolen, timeout=SECONDS)).code is grpc.StatusCode.NOT_FOUND


def test_each_mode_finds_what_it_is_for(gateway: MemoryServiceStub, namespace: str) -> None:
    remember(gateway, namespace, "The cat sat on the windowsill watching birds")
    remember(gateway, namespace, "Error code QX-7741 means that the disk is full")
    remember(gateway, namespace, "Quarterly revenue grew by nine percent")
    dense = recalled(gateway, namespace, "a feline looking at animals outside", mode=pb.RECALL_MODE_DENSE)
    assert dense[0].startswith("The cat")
    assert recalled(gateway, namespace, "QX-7741", mode=pb.RECALL_MODE_KEYWORD)[0].startswith("Error code")
    assert recalled(gateway, namespace, "feline QX-7741")[0].startswith("Error code")
    default = gateway.Recall(pb.RecallRequest(namespace=namespace, query="revenue"), timeout=SECONDS)
    assert (default.mode, default.HasField("degradation"), default.omitted_hits) == (pb.RECALL_MODE_HYBRID, False, 0)


def test_a_dense_hit_explains_its_score_by_the_published_formula(gateway: MemoryServiceStub, namespace: str) -> None:
    remember(gateway, namespace, "We chose PostgreSQL for billing", importance=1.0, created_at=days_ago(45))
    remember(gateway, namespace, "Lunch was good today")
    request = pb.RecallRequest(namespace=namespace, query="which database for billing", mode=pb.RECALL_MODE_DENSE)
    hits = gateway.Recall(request, timeout=SECONDS).hits
    assert len(hits) == 2
    for hit in hits:
        assert hit.similarity == pytest.approx((1 + hit.cosine_similarity) / 2)
        assert hit.relevance == pytest.approx(hit.similarity)
        assert hit.surprise == pytest.approx(hit.memory.surprise.score)
        assert hit.score == pytest.approx(ranking.score(hit.similarity, hit.surprise * hit.salience, hit.decay, 0.5))
    assert [hit.salience for hit in hits] == [1, 0]
    assert hits[0].decay == pytest.approx(2 ** (-45 / 30), abs=1e-3)
    request.no_surprise_boost = True
    plain = gateway.Recall(request, timeout=SECONDS).hits
    assert [hit.score for hit in plain] == [hit.similarity for hit in plain]


def test_a_hybrid_hit_tells_what_every_arm_says_of_it(gateway: MemoryServiceStub, namespace: str) -> None:
    for content in (
        "The boiler is serviced every October",
        "Invoices are paid in October",
        "Trains to Graz run hourly",
    ):
        remember(gateway, namespace, content)
    request = pb.RecallRequest(namespace=namespace, query="When is the boiler serviced?", no_surprise_boost=True)
    answer = gateway.Recall(request, timeout=SECONDS)
    best, *others = answer.hits
    assert best.memory.content.startswith("The boiler")
    assert [best.dense.rank, best.keyword.rank, best.late_interaction.rank] == [1, 1, 1]
    assert best.relevance == pytest.approx(best.similarity)
    assert sorted(hit.late_interaction.rank for hit in answer.hits) == [1, 2, 3]
    assert all(-1 <= hit.late_interaction.score < best.late_interaction.score for hit in others)
    assert [hit.relevance for hit in answer.hits] == sorted((hit.relevance for hit in answer.hits), reverse=True)
    assert [hit.score for hit in answer.hits] == [hit.relevance for hit in answer.hits]


@pytest.mark.parametrize("mode", [pb.RECALL_MODE_DENSE, pb.RECALL_MODE_KEYWORD])
def test_a_single_arm_knows_nothing_of_tokens(
    gateway: MemoryServiceStub, namespace: str, mode: pb.RecallMode.ValueType
) -> None:
    remember(gateway, namespace, "The boiler is serviced every October")
    request = pb.RecallRequest(namespace=namespace, query="boiler", mode=mode)
    [hit] = gateway.Recall(request, timeout=SECONDS).hits
    assert not hit.HasField("late_interaction")


def test_a_recall_tells_where_its_time_went(gateway: MemoryServiceStub, namespace: str) -> None:
    remember(gateway, namespace, "The boiler is serviced every October")
    times = gateway.Recall(pb.RecallRequest(namespace=namespace, query="boiler"), timeout=SECONDS).times
    told = {field.name: getattr(times, field.name).ToNanoseconds() for field in pb.RecallTimes.DESCRIPTOR.fields}
    assert min(told.values()) > 0
    assert told["keyword"] + told["dense"] + told["late_interaction"] <= told["search"]


def test_surprise_is_measured_against_the_nearest_of_the_namespace(gateway: MemoryServiceStub, namespace: str) -> None:
    first = remember(gateway, namespace, "The garden has three apple trees").memory.surprise
    near = remember(gateway, namespace, "The garden has four apple trees").memory.surprise
    far = remember(gateway, namespace, "Kubernetes evicted the pod for memory pressure").memory.surprise
    assert (first.components.embedding_outlier, first.version) == (0.5, 2)
    assert near.components.embedding_outlier < 0.5 < far.components.embedding_outlier < 1


def test_a_caller_cannot_forge_surprise(gateway: MemoryServiceStub, namespace: str) -> None:
    forged = '{"_hippo": {"surprise": {"score": 1.0}, "other": 1}, "namespace": "x"}'
    memory = remember(gateway, namespace, "An ordinary remark", metadata=forged).memory
    stored = json.loads(memory.metadata)
    assert stored["_hippo"]["surprise"]["score"] == pytest.approx(memory.surprise.score)
    assert memory.surprise.score < 1
    assert stored["_hippo"]["other"] == 1
    assert memory.namespace == namespace


def test_hints_are_found_by_the_keyword_arm_and_cleared_by_an_update(
    gateway: MemoryServiceStub, namespace: str
) -> None:
    content = "The API binds to the documented endpoint"
    remember(gateway, namespace, content, key="address", hints=["what port does the server listen on"])
    assert recalled(gateway, namespace, "port", mode=pb.RECALL_MODE_KEYWORD) == [content]
    remember(gateway, namespace, content)  # The same content by chance: it takes nothing away.
    assert recalled(gateway, namespace, "port", mode=pb.RECALL_MODE_KEYWORD) == [content]
    remember(gateway, namespace, content, key="address")
    assert recalled(gateway, namespace, "port", mode=pb.RECALL_MODE_KEYWORD) == []


def test_lists_are_newest_first_and_page_to_the_end(gateway: MemoryServiceStub, namespace: str) -> None:
    for day in range(5):
        remember(gateway, namespace, f"Day {day}", tags=[f"d{day % 2}"], created_at=days_ago(day))
    seen, token = [], ""
    while True:
        page = gateway.ListMemories(
            pb.ListMemoriesRequest(namespace=namespace, page_size=2, page_token=token), timeout=SECONDS
        )
        assert page.total_size == 5
        seen += [memory.content for memory in page.memories]
        token = page.next_page_token
        if not token:
            break
    assert seen == [f"Day {day}" for day in range(5)]
    odd = pb.ListMemoriesRequest(namespace=namespace, skip=1, filter=memory_pb2.Filter(tags_any=["d1"]))
    assert [memory.content for memory in gateway.ListMemories(odd, timeout=SECONDS).memories] == ["Day 3"]


def test_filters_hold_in_every_arm(gateway: MemoryServiceStub, namespace: str) -> None:
    remember(gateway, namespace, "Penguins live in the south", tags=["test"], memory_type="fact")
    remember(gateway, namespace, "Penguins live in zoos", tags=["testing"], memory_type="note")
    for mode in (pb.RECALL_MODE_DENSE, pb.RECALL_MODE_KEYWORD, pb.RECALL_MODE_HYBRID):
        for narrow in (memory_pb2.Filter(tags_any=["test"]), memory_pb2.Filter(memory_types=["fact"])):
            assert recalled(gateway, namespace, "penguins", mode=mode, filter=narrow) == ["Penguins live in the south"]


def test_a_summary_counts_types_tags_and_highlights(gateway: MemoryServiceStub, namespace: str) -> None:
    remember(gateway, namespace, "We decided on tabs", memory_type="decision", tags=["style"], importance=1.0)
    remember(gateway, namespace, "We decided on spaces", memory_type="decision", tags=["style", "late"])
    remember(gateway, namespace, "Long ago", created_at=days_ago(3))
    summary = gateway.SummarizeSession(pb.SummarizeSessionRequest(namespace=namespace), timeout=SECONDS).summary
    assert summary.total_memories == 2
    assert dict(summary.by_type) == {"decision": 2}
    assert [(entry.tag, entry.count) for entry in summary.top_tags] == [("style", 2), ("late", 1)]
    assert summary.highlights[0].content == "We decided on tabs"
    assert 0 < summary.mean_surprise <= 1
    everything = pb.SummarizeSessionRequest(namespace=namespace, hours=100)
    assert gateway.SummarizeSession(everything, timeout=SECONDS).summary.total_memories == 3


def test_a_batch_tells_the_error_of_each_item(gateway: MemoryServiceStub, namespace: str) -> None:
    contents = ["One fine day", "   ", "Another day", "One fine day"]
    request = pb.BatchRememberRequest(
        requests=[pb.RememberRequest(namespace=namespace, content=content) for content in contents]
    )
    results = gateway.BatchRemember(request, timeout=SECONDS).results
    assert [result.WhichOneof("result") for result in results] == ["response", "error", "response", "response"]
    assert (results[1].error.code, results[1].error.field) == (grpc.StatusCode.INVALID_ARGUMENT.value[0], "content")
    assert results[3].response.outcome == memory_pb2.WRITE_OUTCOME_EXISTED
    assert results[3].response.memory.id == results[0].response.memory.id


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("content", {"content": " \n\t "}),
        ("content", {"content": "before\x00after zebra"}),
        ("content", {"content": "x" * 65_537}),
        ("tags[0]", {"content": "ok", "tags": ["t" * 2000]}),
        ("tags", {"content": "ok", "tags": [str(number) for number in range(33)]}),
        ("hints", {"content": "ok", "hints": ["a", "b", "c", "d"]}),
        ("importance", {"content": "ok", "importance": 2.0}),
        ("metadata", {"content": "ok", "metadata": "[1]"}),
        ("namespace", {"content": "ok", "namespace": "a\x07"}),
    ],
)
def test_bad_memories_are_refused_by_field_and_nothing_is_stored(
    gateway: MemoryServiceStub, namespace: str, field: str, fields: dict[str, object]
) -> None:
    request = pb.RememberRequest(**{"namespace": namespace, **fields})  # type: ignore[arg-type]
    error = refused(lambda: gateway.Remember(request, timeout=SECONDS))
    assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, field)
    assert error.reason == "INVALID_FIELD"
    listed = gateway.ListMemories(pb.ListMemoriesRequest(namespace=namespace), timeout=SECONDS)
    assert listed.total_size == 0


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("query", {"query": ""}),
        ("query", {"query": "  \n"}),
        ("query", {"query": "q\x00"}),
        ("query", {"query": "q" * 8193}),
        ("limit", {"query": "q", "limit": 0}),
        ("limit", {"query": "q", "limit": -1}),
        ("limit", {"query": "q", "limit": 101}),
        ("limit", {"query": "q", "limit": 2**31 - 1}),
        ("mode", {"query": "q", "mode": 99}),
        ("oversample_factor", {"query": "q", "oversample_factor": 0}),
        ("oversample_factor", {"query": "q", "oversample_factor": 101}),
        ("filter.tags_any[0]", {"query": "q", "filter": memory_pb2.Filter(tags_any=[" "])}),
    ],
)
def test_bad_recalls_are_refused_by_field(gateway: MemoryServiceStub, field: str, fields: dict[str, object]) -> None:
    request = pb.RecallRequest(**fields)  # type: ignore[arg-type]
    error = refused(lambda: gateway.Recall(request, timeout=SECONDS))
    assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, field)


@pytest.mark.parametrize(
    "query", ['"', "AND", "NEAR(", "a*b", "C++ -x:y ^z", "' OR 1=1 --", "???", "what does the user have"]
)
def test_no_query_is_a_syntax_error(gateway: MemoryServiceStub, namespace: str, query: str) -> None:
    remember(gateway, namespace, "Anything at all")
    for mode in (pb.RECALL_MODE_KEYWORD, pb.RECALL_MODE_HYBRID):
        recalled(gateway, namespace, query, mode=mode)


def test_other_bad_requests_are_refused_by_field(gateway: MemoryServiceStub, namespace: str) -> None:
    def field(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
        error = refused(call)
        return error.code, error.field

    invalid, missing = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    unknown = memory_pb2.MemoryRef(id=2**62)
    assert field(lambda: gateway.GetMemory(pb.GetMemoryRequest(namespace=namespace))) == (invalid, "ref")
    assert field(lambda: gateway.GetMemory(pb.GetMemoryRequest(namespace=namespace, ref=unknown))) == (
        missing,
        "ref.id",
    )
    assert field(lambda: gateway.Forget(pb.ForgetRequest(namespace=namespace))) == (invalid, "ref")
    assert field(lambda: gateway.Forget(pb.ForgetRequest(namespace=namespace, ref=unknown))) == (missing, "ref.id")
    for size in (0, -1, 101):
        page = pb.ListMemoriesRequest(namespace=namespace, page_size=size)
        assert field(lambda: gateway.ListMemories(page)) == (invalid, "page_size")  # noqa: B023  # Called at once.
    broken = pb.ListMemoriesRequest(namespace=namespace, page_token="nonsense")
    assert field(lambda: gateway.ListMemories(broken)) == (invalid, "page_token")
    for hours in (0.0, -1.0, 1e9, float("nan")):
        summarize = pb.SummarizeSessionRequest(namespace=namespace, hours=hours)
        assert field(lambda: gateway.SummarizeSession(summarize)) == (invalid, "hours")  # noqa: B023
    for count, content in ((0, ""), (101, "x"), (40, "x" * 60_000)):
        batch = pb.BatchRememberRequest(requests=[pb.RememberRequest(content=content)] * count)
        assert field(lambda: gateway.BatchRemember(batch)) == (invalid, "requests")  # noqa: B023


def test_ping_tells_how_every_service_is(gateway: MemoryServiceStub) -> None:
    remember(gateway, "ping", "One memory at least")
    answer = gateway.Ping(pb.PingRequest(), timeout=SECONDS)
    assert {service.name: service.serving for service in answer.services} == {"embedding": True, "storage": True}
    assert answer.live_memories >= 1
    assert answer.uptime_seconds > 0
    assert answer.mcp_http_url.startswith("http://127.0.0.1:")


def test_health_is_served(stack: Stack) -> None:
    with grpc.insecure_channel(f"unix:{stack.home / 'run' / 'gateway.sock'}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "hippovault.memory.v1.MemoryService"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=SECONDS)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_batch_is_written_in_the_order_of_its_items(gateway: MemoryServiceStub, namespace: str) -> None:
    remember(gateway, namespace, "The port is B", category="api", key="port")
    remember(gateway, namespace, "Known already", tags=["first"])
    contents = [("port", "The port is A"), ("", "Known already"), ("port", "The port is B"), ("port", "The port is C")]
    items = [
        pb.RememberRequest(namespace=namespace, category=key and "api", key=key, content=content, tags=["batch"])
        for key, content in contents
    ]
    results = gateway.BatchRemember(pb.BatchRememberRequest(requests=items), timeout=SECONDS).results
    assert [result.response.outcome for result in results] == [
        memory_pb2.WRITE_OUTCOME_UPDATED,
        memory_pb2.WRITE_OUTCOME_EXISTED,
        memory_pb2.WRITE_OUTCOME_UPDATED,
        memory_pb2.WRITE_OUTCOME_UPDATED,
    ]
    assert [result.response.memory.content for result in results] == [content for _, content in contents]
    assert recalled(gateway, namespace, "port", mode=pb.RECALL_MODE_KEYWORD) == ["The port is C"]
    assert list(results[1].response.memory.tags) == ["first", "batch"]


def test_a_batch_may_be_larger_than_what_is_embedded_at_once(home: Path) -> None:
    with running(home, {"HIPPOVAULT_EMBEDDING_MAX_TEXTS": "2"}) as small, small.client() as client:
        items = [pb.RememberRequest(content=f"Memory number {number}") for number in range(5)]
        results = client.BatchRemember(pb.BatchRememberRequest(requests=items), timeout=SECONDS).results
        assert [result.response.memory.content for result in results] == [item.content for item in items]


def test_a_model_that_does_not_fit_the_store_is_told_by_both_numbers(home: Path) -> None:
    with running(home, {"HIPPOVAULT_STORAGE_DIMENSIONS": "8"}) as odd, odd.client() as client:
        statuses = {status.name: status for status in client.Ping(pb.PingRequest(), timeout=SECONDS).services}
        assert not statuses["storage"].serving
        assert "8 dimensions" in statuses["storage"].reason
        assert "384" in statuses["storage"].reason
        error = refused(lambda: client.Remember(pb.RememberRequest(content="x"), timeout=SECONDS))
        assert (error.code, error.reason, error.field) == (grpc.StatusCode.FAILED_PRECONDITION, "MODEL_MISMATCH", "")


def test_another_model_than_the_stores_is_told_and_nothing_is_compared(home: Path) -> None:
    folders = [str(tiny(home.parent / pooling, pooling)) for pooling in ("mean", "cls")]
    variables = {"HIPPOVAULT_EMBEDDING_MODEL": folders[0], "HIPPOVAULT_STORAGE_DIMENSIONS": str(TINY_DIMENSIONS)}
    with running(home, variables) as memory, memory.client() as client:
        there = remember(client, "default", "the first whale").memory
        serve(memory, folders[1])
        told = {status.name: status for status in client.Ping(pb.PingRequest(), timeout=SECONDS).services}["storage"]
        assert not told.serving
        assert there.model_revision in told.reason
        new, old = (pb.RememberRequest(content=content) for content in ("a second whale", there.content))
        changed = pb.UpdateMemoryRequest(
            ref=memory_pb2.MemoryRef(id=there.id),
            memory=memory_pb2.Memory(content="changed"),
            update_mask=FieldMask(paths=["content"]),
        )
        dense = pb.RecallRequest(query="whale", mode=pb.RECALL_MODE_DENSE)
        calls: list[Callable[[], object]] = [
            lambda: client.Remember(new, timeout=SECONDS),
            lambda: client.UpdateMemory(changed, timeout=SECONDS),
            lambda: client.Recall(dense, timeout=SECONDS),
        ]
        for call in calls:
            error = refused(call)
            assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "MODEL_MISMATCH")
            assert f"of the store of {there.model_revision}" in error.message
            assert "serve the model that the store was made with" in error.message
        results = client.BatchRemember(pb.BatchRememberRequest(requests=[new, old]), timeout=SECONDS).results
        assert [result.error.reason for result in results] == ["MODEL_MISMATCH", ""]
        hybrid = client.Recall(pb.RecallRequest(query="whale"), timeout=SECONDS)
        assert [hit.memory for hit in hybrid.hits] == [there]
        assert hybrid.degradation.missing == pb.RECALL_MODE_DENSE
        assert hybrid.degradation.reason == error.message
        serve(memory, folders[0])
        assert [hit.memory for hit in client.Recall(dense, timeout=SECONDS).hits] == [there]
        assert client.Remember(new, timeout=SECONDS).outcome == memory_pb2.WRITE_OUTCOME_CREATED


def serve(memory: Stack, folder: str) -> None:
    """Has the embedding service started anew with another default model."""
    memory.processes["embedding"].stop()
    memory.environment = {**memory.environment, "HIPPOVAULT_EMBEDDING_MODEL": folder}
    memory.restart("embedding")


def test_an_answer_too_large_for_a_client_says_how_many_hits_it_omits(
    gateway: MemoryServiceStub, namespace: str
) -> None:
    contents = [f"whale {number} " + "x" * 65_000 for number in range(60)]
    items = [pb.RememberRequest(namespace=namespace, content=content) for content in contents]
    for half in (items[:30], items[30:]):
        gateway.BatchRemember(pb.BatchRememberRequest(requests=half), timeout=SECONDS)
    request = pb.RecallRequest(namespace=namespace, query="whale", limit=60)
    answer = gateway.Recall(request, timeout=SECONDS)
    assert 0 < answer.omitted_hits == 60 - len(answer.hits)


def test_a_hit_that_surprise_lifts_from_far_below_comes_whole(gateway: MemoryServiceStub, namespace: str) -> None:
    for number in range(9):
        remember(gateway, namespace, f"The harbour master logs ship number {number}", created_at=days_ago(4000))
    storm = "The harbour closed after the storm " + "of the century " * 300
    remember(gateway, namespace, storm, importance=1.0, tags=[f"tag {number}" for number in range(20)])
    request = pb.RecallRequest(
        namespace=namespace, query="harbour", limit=1, mode=pb.RECALL_MODE_DENSE, oversample_factor=100
    )
    [hit] = gateway.Recall(request, timeout=SECONDS).hits
    request.limit, request.no_surprise_boost = 10, True
    plain = [hit.memory.content for hit in gateway.Recall(request, timeout=SECONDS).hits]
    assert plain.index(hit.memory.content) > 2  # Of the two that come whole without being asked for.
    assert hit.matched_by == [memory_pb2.MATCHED_BY_DENSE]
