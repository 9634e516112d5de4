"""Spans as an OpenTelemetry collector gets them from real processes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceStub
from hippovault.memory.v1 import memory_service_pb2
from integration.mcp_support import RawSession
from support.collector import Collector, Span, collecting
from support.processes import Process, start
from support.stack import SERVICES, running

SECONDS = 30
CLOCK_NANOSECONDS = 1_000_000
"""Within which the two clocks that spans are taken from agree."""
SECRET = "the vault is blue"  # noqa: S105
EMBED = "hippovault.embedding.v1.EmbeddingService/Embed"
RECALL = "tools/call hippo_recall"
OWN = {"hippovault.storage.v1.StorageService/ListUnembedded", "hippovault.embedding.v1.EmbeddingService/GetModel"}
"""What the gateway asks by itself, since memories may lack vectors."""
REMEMBER = "hippovault.memory.v1.MemoryService/Remember"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@contextmanager
def embedding(home: Path, **variables: str) -> Iterator[tuple[Process, EmbeddingServiceStub]]:
    """An embedding process and a client of it."""
    process = start(["hippovault_embedding"], home, "embedding", variables)
    try:
        with grpc.insecure_channel(process.status) as channel:
            yield process, EmbeddingServiceStub(channel)
    finally:
        process.kill()


def trace_of(collector: Collector, root: str) -> dict[str, Span]:
    """The spans of the one trace that begins so, by name; each name comes once."""
    (first,) = [span for span in collector.spans if span.name == root]
    assert first.parent == b""
    found = [span for span in collector.spans if span.trace == first.trace]
    assert len({span.name for span in found}) == len(found)
    return {span.name: span for span in found}


def warnings(process: Process) -> list[str]:
    told = (json.loads(line) for line in process.log.read_text().splitlines())
    return [line["event"] for line in told if line["level"] != "info"]


def test_a_call_of_grpc_or_of_a_tool_is_one_trace_through_all_processes(home: Path) -> None:
    with collecting() as collector, running(home, collector.variables) as stack:
        with stack.client() as client:
            client.Remember(memory_service_pb2.RememberRequest(namespace="n", content=SECRET), timeout=SECONDS)
        with RawSession(home / "run" / "mcp.sock") as session:
            assert not session.call("hippo_recall", {"query": SECRET})["result"].get("isError")
        assert [stack.processes[name].stop() for name in reversed(SERVICES)] == [0, 0, 0]
    spans = trace_of(collector, REMEMBER)
    root, embed = spans[REMEMBER], spans[EMBED]
    assert root.service == "hippovault-gateway"
    assert (embed.service, embed.parent) == ("hippovault-embedding", root.id)
    stored = [span for span in spans.values() if span.service == "hippovault-storage"]
    assert {span.facts["rpc.method"] for span in stored} == {"FindMemory", "CompareToNewest", "PutMemory"}
    assert {span.parent for span in stored} == {root.id}

    parts = ["load", "tokenize", "queue", "inference"]
    assert {span.name for span in spans.values() if span.parent == embed.id} == set(parts)
    times = [embed.start, *(time for name in parts for time in (spans[name].start, spans[name].end)), embed.end]
    assert all(later > earlier - CLOCK_NANOSECONDS for earlier, later in itertools.pairwise(times))
    assert spans["tokenize"].facts == {"texts": 1, "tokens": 6}
    assert spans["inference"].facts == {"model": "all-MiniLM-L6-v2", "texts": 1, "tokens": 6}
    assert {EMBED, "hippovault.storage.v1.StorageService/SearchMemories"} < set(trace_of(collector, RECALL))
    asked = [span for span in collector.spans if span.name not in OWN]
    assert len({span.trace for span in asked}) == 2
    assert SECRET not in str(collector.requests)


def test_a_callers_trace_goes_on_and_failures_are_told_by_reason(home: Path) -> None:
    with collecting() as collector:
        with embedding(home, OTEL_SERVICE_NAME="mine", **collector.variables) as (process, stub):
            request = pb.EmbedRequest(texts=["a", "b\0" + SECRET])
            for traceparent in (TRACEPARENT, "00-not-a-trace"):
                with pytest.raises(grpc.RpcError):
                    stub.Embed(request, timeout=SECONDS, metadata=(("traceparent", traceparent),))
            assert process.stop() == 0
            assert not warnings(process)
        followed, alone = collector.spans
    assert (followed.trace.hex(), followed.parent.hex()) == (TRACE, PARENT)
    assert alone.trace.hex() != TRACE
    assert alone.parent == b""
    for span in (followed, alone):
        assert (span.name, span.service, span.failed) == (EMBED, "mine", False)
        assert (span.facts["rpc.grpc.status_code"], span.facts["error.type"]) == (3, "INVALID_FIELD")
    assert SECRET not in str(collector.requests)


def test_calls_that_share_a_batch_tell_of_it_each(home: Path) -> None:
    with collecting() as collector:
        with embedding(home, **collector.variables) as (process, stub):
            # The first is computed while the others gather; they are of one size, so that one batch takes them.
            calls = [stub.Embed.future(pb.EmbedRequest(texts=[f"a{index}"]), timeout=SECONDS) for index in range(5)]
            assert all(call.result().dimensions for call in calls)
            assert process.stop() == 0
        spans = collector.spans
    embeds = {span.id: span for span in spans if span.name == EMBED}
    inferences = [span for span in spans if span.name == "inference"]
    assert {span.parent for span in inferences} == set(embeds)
    assert len({span.trace for span in inferences}) == 5
    shared = [span for span in inferences if span.facts["texts"] > 1]
    assert len(shared) >= 2
    assert all(embeds[span.parent].trace == span.trace for span in inferences)


def test_a_collector_that_is_gone_costs_no_call_and_no_stop(home: Path) -> None:
    with embedding(home, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1") as (process, stub):
        assert stub.Embed(pb.EmbedRequest(texts=["x"]), timeout=SECONDS).dimensions
        assert process.stop() == 0
        assert any("127.0.0.1:1" in warning for warning in warnings(process))


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "the OTLP protocol must be grpc"),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": SECRET}, "a variable OTEL_* is wrong"),
        ({"PYTHONPATH": "without"}, "the packages of hippovault-chassis[tracing] are not installed"),
    ],
)
def test_what_cannot_be_exported_is_one_warning(home: Path, variables: dict[str, str], problem: str) -> None:
    if "PYTHONPATH" in variables:
        # As where the extra is not installed.
        (home.parent / "sitecustomize.py").write_text("import sys\nsys.modules['opentelemetry.sdk'] = None\n")
        variables = {"PYTHONPATH": str(home.parent)}
    with embedding(home, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", **variables) as (process, stub):
        assert stub.GetModel(pb.GetModelRequest(), timeout=SECONDS).dimensions
        assert process.stop() == 0
        assert warnings(process) == [f"spans are not exported: {problem}"]
        assert SECRET not in process.log.read_text()
