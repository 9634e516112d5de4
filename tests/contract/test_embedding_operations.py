"""How the embedding process is watched, and how it ends under load."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceStub
from hippovault_chassis.errors import ServiceError
from hippovault_embedding import settings
from support.metrics import LISTEN, scrape
from support.processes import STOP_SECONDS, Process, start
from support.short_grace import GRACE_SECONDS
from support.waiting import until

SERVICE = "hippovault.embedding.v1.EmbeddingService"
SECONDS = 60
SECRET = "the vault is blue"  # noqa: S105
MODEL = "all-MiniLM-L6-v2"
DOCUMENT = {"model": MODEL, "lane": "document"}
TESTS = Path(__file__).parents[1]


@contextmanager
def serving(
    home: Path, *flags: str, module: str = "hippovault_embedding", **variables: str
) -> Iterator[tuple[Process, EmbeddingServiceStub]]:
    """A process that tells its metrics, and a client of it."""
    process = start([module, *LISTEN, *flags], home, "embedding", variables)
    try:
        with grpc.insecure_channel(process.status) as channel:
            yield process, EmbeddingServiceStub(channel)
    finally:
        process.kill()


def bulk(texts: int, words: int = 300) -> pb.EmbedRequest:
    """Texts that take long, none like another."""
    return pb.EmbedRequest(texts=[f"{SECRET} {index} " + "hello " * words for index in range(texts)])


def embed(
    stub: EmbeddingServiceStub, *texts: str, input_type: pb.InputType.ValueType = pb.INPUT_TYPE_UNSPECIFIED
) -> pb.EmbedResponse:
    return stub.Embed(pb.EmbedRequest(texts=texts, input_type=input_type), timeout=SECONDS)


def reason(call: grpc.RpcError) -> str:
    return ServiceError.from_rpc(call, "embedding").reason


def told(process: Process, name: str, **labels: str) -> float:
    return scrape(process).value(f"hippovault_embedding_{name}", model=MODEL, **labels)


def failures(process: Process) -> list[tuple[str, str, str]]:
    lines = (json.loads(line) for line in process.log.read_text().splitlines() if line.startswith("{"))
    return [(line["level"], line["code"], line["reason"]) for line in lines if line["event"] == "call failed"]


# Metrics


def test_texts_batches_lanes_and_the_cache_are_counted(home: Path) -> None:
    with serving(home) as (process, stub):
        embed(stub, "a", "a b c d")
        embed(stub, "a", "e")
        embed(stub, "a b", input_type=pb.INPUT_TYPE_QUERY)
        metrics = scrape(process)

    def value(name: str, **labels: str) -> float:
        return metrics.value(f"hippovault_embedding_{name}", model=MODEL, **labels)

    assert (value("cache_lookups_total", result="miss"), value("cache_lookups_total", result="hit")) == (4, 1)
    # Two special tokens in each: 2 * 6, then 1 * 3, then 1 * 4.
    assert (value("batch_tokens_count"), value("batch_tokens_sum"), value("padding_tokens_total")) == (3, 19, 3)
    assert (value("batch_texts_sum"), value("batch_texts_bucket", le="8.0")) == (4, 3)
    for name in ("tokenize_seconds", "inference_seconds"):
        assert value(f"{name}_count") == 3
        assert 0 < value(f"{name}_sum") < SECONDS
    assert (value("queue_seconds_count", lane="document"), value("queue_seconds_count", lane="query")) == (2, 1)
    assert (value("load_seconds_count"), value("load_failures_total"), value("unloads_total")) == (1, 0, 0)
    assert value("load_seconds_sum") > 0.01
    assert value("queue_tokens") == value("queue_texts") == 0


def test_what_waits_and_what_is_refused_is_counted_and_no_text_is_told(home: Path) -> None:
    with serving(home, "--max-queue-tokens", "500", "--log-level", "debug") as (process, stub):
        waiting = stub.Embed.future(bulk(200), timeout=SECONDS)
        until(lambda: told(process, "queue_tokens", lane="document") >= 500)
        assert 1 < told(process, "queue_texts", lane="document") < 200
        assert told(process, "queue_tokens", lane="query") == 0
        with pytest.raises(grpc.RpcError) as full:
            embed(stub, SECRET)
        assert reason(full.value) == "QUEUE_FULL"
        with pytest.raises(grpc.RpcError) as bad:
            embed(stub, f"{SECRET}\0", input_type=pb.INPUT_TYPE_QUERY)
        assert reason(bad.value) == "INVALID_FIELD"
        waiting.cancel()
        until(lambda: told(process, "queue_tokens") == told(process, "queue_texts") == 0)
        assert told(process, "refusals_total", reason="QUEUE_FULL") == 1
        until(lambda: len(failures(process)) == 3)
        assert failures(process) == [
            ("info", "RESOURCE_EXHAUSTED", "QUEUE_FULL"),
            ("info", "INVALID_ARGUMENT", "INVALID_FIELD"),
            ("info", "CANCELLED", "CANCELLED"),
        ]
        assert process.stop() == 0
        assert SECRET not in process.log.read_text()


def test_a_model_that_is_let_go_of_is_counted(home: Path) -> None:
    with serving(home, "--idle-seconds", "0.05") as (process, stub):
        for times in (1, 2):
            embed(stub, f"{times}")
            until(lambda times=times: told(process, "unloads_total") == times)  # type: ignore[misc]
        assert told(process, "load_seconds_count") == 2


def test_a_model_that_cannot_be_loaded_is_counted_and_told_by_health_until_it_can(home: Path) -> None:
    package = home.parent / "packages" / "hippovault_embedding"
    shutil.copytree(Path(settings.__file__).parent, package)
    damaged = package / "assets" / "tokenizer.json"
    intact = damaged.read_bytes()
    damaged.write_bytes(intact[:-1])
    with (
        serving(home, PYTHONPATH=str(package.parent)) as (process, stub),
        grpc.insecure_channel(process.status) as channel,
    ):

        def health() -> int:
            request = health_pb2.HealthCheckRequest(service=SERVICE)
            return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=SECONDS).status)

        assert health() == health_pb2.HealthCheckResponse.SERVING  # As far as is known.
        for _ in range(2):
            with pytest.raises(grpc.RpcError):
                embed(stub, SECRET)
        assert health() == health_pb2.HealthCheckResponse.NOT_SERVING
        assert (told(process, "load_failures_total"), told(process, "load_seconds_count")) == (2, 0)
        assert failures(process) == [("warning", "UNAVAILABLE", "SERVICE_UNAVAILABLE")] * 2
        damaged.write_bytes(intact)
        embed(stub, SECRET)
        assert health() == health_pb2.HealthCheckResponse.SERVING
        assert (told(process, "load_failures_total"), told(process, "load_seconds_count")) == (2, 1)


# Stopping


def test_what_was_admitted_is_answered_after_sigterm_and_what_is_new_is_refused(home: Path) -> None:
    with serving(home, "--workers", "1") as (process, stub):
        embed(stub, "x")
        calls = [stub.Embed.future(request, timeout=SECONDS) for request in (bulk(5), bulk(8, 150))]
        # Both wait: more than either has.
        until(lambda: told(process, "queue_texts", lane="document") > 8)
        process.popen.send_signal(signal.SIGTERM)
        until(lambda: _is_refused(process))
        assert [len(call.result().texts) for call in calls] == [5, 8]
        assert process.popen.wait(STOP_SECONDS) == 0


def _is_refused(process: Process) -> bool:
    """Tells whether a new client is; one whose call comes in the moment of the server's closing is cancelled by it."""
    with grpc.insecure_channel(process.status) as channel:
        code = EmbeddingServiceStub(channel).GetModel.future(pb.GetModelRequest(), timeout=SECONDS).code()
    assert code in {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
    return code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("part", ["computing", "tokenising"])
def test_what_takes_longer_than_the_grace_ends_with_the_process(home: Path, part: str) -> None:
    request = bulk(250) if part == "computing" else bulk(230, 10_000)
    request.max_windows = 1 if part == "computing" else 64
    flags = ("--max-queue-tokens", "100000000")  # Both are taken on.
    with serving(home, *flags, module="support.short_grace", PYTHONPATH=str(TESTS)) as (process, stub):
        embed(stub, "x")
        calls = [stub.Embed.future(request, timeout=SECONDS) for _ in range(2)]
        until(lambda: scrape(process).value("grpc_server_in_flight", grpc_method="Embed") == 2)
        if part == "computing":
            until(lambda: told(process, "queue_texts") > 0)
        began = time.monotonic()
        process.popen.send_signal(signal.SIGTERM)
        assert {call.code() for call in calls} <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
        assert process.popen.wait(STOP_SECONDS) == 0
        assert time.monotonic() - began < GRACE_SECONDS + 5
        assert SECRET not in process.log.read_text()
