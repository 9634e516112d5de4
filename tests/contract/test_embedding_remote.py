"""EmbeddingService over a server with OpenAI's API of embeddings: a real process, and a real server that misbehaves."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from grpc_health.v1 import health_pb2

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceStub
from hippovault.memory.v1 import memory_service_pb2 as memory_pb
from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceStub
from hippovault_chassis.errors import ServiceError
from hippovault_embedding.remote_model import MAX_DIMENSIONS
from support.embedding import health_of
from support.processes import Process, start
from support.stack import running
from support.waiting import until

SECONDS = 30
DIMENSIONS = 8
REQUESTS = 8
KEY = "sk-secret-4711"
MARK = "confidential"
"""In every text of these tests, and in no log and no error."""


@dataclass
class Request:
    """What the server was sent."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float = field(default_factory=time.monotonic)

    @property
    def texts(self) -> list[str]:
        return list(self.body["input"])


@dataclass
class Answer:
    """What it answers."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Behaviour = Callable[[Request], Answer]


class Server:
    """A local server that answers as a test tells it."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[Request] = []
        self.behaviours: list[Behaviour] = []
        """Of the next requests; then it does as it should."""
        self.always: Behaviour = embedded
        self._http = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        behaviour = self.behaviours.pop(0) if self.behaviours else self.always
        return behaviour(request)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_CONNECT(self) -> None:  # The same.
                server.requests.append(Request(self.path, dict(self.headers), {}))
                self.send_error(502)

            def do_POST(self) -> None:  # The library names it.
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = server.answer(Request(self.path, dict(self.headers), body))
                self.send_response(answer.status)
                for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: object) -> None:
                pass

            def handle(self) -> None:
                with suppress(ConnectionError):  # Of a caller that waits no longer.
                    super().handle()

        return Handler


def values(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """The server's vector of a text, of no particular length."""
    digest = hashlib.sha256(text.encode()).digest()
    return [byte / 16 - 8 for byte in digest[:dimensions]]


def encoded(vector: Sequence[float]) -> str:
    return base64.b64encode(np.array(vector, "<f4").tobytes()).decode()


def items(request: Request) -> list[dict[str, Any]]:
    """Right ones, last first, so that nobody can rely on the order."""
    dimensions = request.body.get("dimensions", DIMENSIONS)
    base64_wanted = request.body.get("encoding_format") == "base64"
    vectors = [values(text, dimensions) for text in request.texts]
    every = [
        {"object": "embedding", "index": index, "embedding": encoded(vector) if base64_wanted else vector}
        for index, vector in enumerate(vectors)
    ]
    return every[::-1]


def answer_of(data: object) -> Answer:
    return Answer(json.dumps({"object": "list", "data": data}).encode(), headers={"Content-Type": "application/json"})


def embedded(request: Request) -> Answer:
    return answer_of(items(request))


def status(code: int, **headers: str) -> Behaviour:
    # The words beside an error may quote the texts, as some servers' do.
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request: Answer(json.dumps({"error": {"message": request.texts[0]}}).encode(), code, named)


def every(embedding: object) -> Behaviour:
    """The same in place of each vector."""
    return lambda request: answer_of([{**item, "embedding": embedding} for item in items(request)])


def short_ones(code: int) -> Behaviour:
    """Refuses texts of more than 500 characters."""
    return lambda request: status(code)(request) if max(map(len, request.texts)) > 500 else embedded(request)


@contextmanager
def server_on(port: int = 0) -> Iterator[Server]:
    server = Server(port)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def talking(home: Path, *references: str, **variables: str) -> Iterator[tuple[Process, EmbeddingServiceStub]]:
    """A process that serves these models, and a client; whatever a test does, the log has neither key nor text."""
    flags = [flag for reference in references for flag in ("--model", reference)]
    environment = {"REMOTE_KEY": KEY, **variables}
    process = start(["hippovault_embedding", "--log-level", "debug", *flags], home, "embedding", environment)
    try:
        with grpc.insecure_channel(process.status) as channel:
            yield process, EmbeddingServiceStub(channel)
    finally:
        process.kill()
        log = process.log.read_text()
        assert KEY not in log
        assert MARK not in log


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    with server_on() as server:
        yield server


@pytest.fixture(scope="module")
def stub(module_home: Path, shared: Server) -> Iterator[EmbeddingServiceStub]:
    references = [
        f"{shared.url}/?model=small&key_variable=REMOTE_KEY",
        f"keyless={shared.url}?model=small",
        f"prefixed={shared.url}?model=large&dimensions=4&query_prefix=query%3A+&document_prefix=passage%3A+",
    ]
    with talking(module_home, *references) as (_, stub):
        yield stub


@pytest.fixture
def server(shared: Server) -> Server:
    """The shared one, as new."""
    shared.requests.clear()
    shared.behaviours.clear()
    shared.always = embedded
    return shared


_numbers = iter(range(1_000_000))


def texts_of(count: int, length: int = 0) -> list[str]:
    """Texts that no cache has."""
    return [f"{MARK} {next(_numbers)} ".ljust(length, "x") for _ in range(count)]


def request_of(texts: Sequence[str], model: str = "", *, query: bool = False) -> pb.EmbedRequest:
    input_type = pb.INPUT_TYPE_QUERY if query else pb.INPUT_TYPE_DOCUMENT
    return pb.EmbedRequest(texts=texts, model=model, input_type=input_type)


def embed(stub: EmbeddingServiceStub, texts: Sequence[str], model: str = "") -> pb.EmbedResponse:
    return stub.Embed(request_of(texts, model), timeout=SECONDS)


def vectors(response: pb.EmbedResponse) -> npt.NDArray[np.float32]:
    return np.frombuffer(response.vectors, "<f4").reshape(-1, response.dimensions)


def expected(texts: Sequence[str], dimensions: int = DIMENSIONS) -> npt.NDArray[np.float64]:
    raw = np.array([values(text, dimensions) for text in texts])
    scaled: npt.NDArray[np.float64] = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    return scaled


def refusal(stub: EmbeddingServiceStub, texts: Sequence[str], model: str = "") -> ServiceError:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Embed(request_of(texts, model), timeout=SECONDS)
    error = ServiceError.from_rpc(caught.value, "embedding")
    assert KEY not in error.message
    assert MARK not in error.message
    return error


def load_error(stub: EmbeddingServiceStub, model: str = "") -> str:
    return stub.GetModel(pb.GetModelRequest(model=model), timeout=SECONDS).load_error


def unavailable(stub: EmbeddingServiceStub, server: Server, model: str = "") -> str:
    """What is said of a server that gives no vectors."""
    error = refusal(stub, texts_of(2), model)
    assert error.code is grpc.StatusCode.UNAVAILABLE
    assert f"the server {server.url} " in error.message
    return error.message


# What is asked and answered


def test_vectors_come_in_the_order_of_the_texts_with_norm_1(stub: EmbeddingServiceStub, server: Server) -> None:
    texts = texts_of(20)
    response = embed(stub, texts)
    assert len(server.requests) == 1
    assert vectors(response) == pytest.approx(expected(texts), abs=1e-6)
    assert response.dimensions == DIMENSIONS
    assert [info.windows for info in response.texts] == [1] * 20


def test_the_request_is_that_of_the_api(stub: EmbeddingServiceStub, server: Server) -> None:
    texts = texts_of(1)
    embed(stub, texts)
    [request] = server.requests
    assert request.path == "/v1/embeddings"
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert request.headers["Content-Type"] == "application/json"
    assert request.body == {"model": "small", "input": texts, "encoding_format": "base64"}


def test_dimensions_and_prefixes_are_as_the_reference_says(stub: EmbeddingServiceStub, server: Server) -> None:
    [text] = texts_of(1)
    query = stub.Embed(request_of([text], "prefixed", query=True), timeout=SECONDS)
    document = embed(stub, [text], "prefixed")
    assert [request.texts for request in server.requests] == [[f"query: {text}"], [f"passage: {text}"]]
    assert [request.body["dimensions"] for request in server.requests] == [4, 4]
    assert "Authorization" not in server.requests[0].headers
    assert vectors(query) == pytest.approx(expected([f"query: {text}"], 4), abs=1e-6)
    assert vectors(document) == pytest.approx(expected([f"passage: {text}"], 4), abs=1e-6)


def test_lists_of_numbers_are_taken_too(stub: EmbeddingServiceStub, server: Server) -> None:
    texts = texts_of(3)
    server.behaviours = [
        lambda request: answer_of(
            [{"index": index, "embedding": values(text)} for index, text in enumerate(request.texts)]
        )
    ]
    assert vectors(embed(stub, texts)) == pytest.approx(expected(texts), abs=1e-6)


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_numbers_of_any_size_are_scaled(stub: EmbeddingServiceStub, server: Server, size: float) -> None:
    server.behaviours = [every([size] * DIMENSIONS)]
    assert vectors(embed(stub, texts_of(1))) == pytest.approx(np.full((1, DIMENSIONS), DIMENSIONS**-0.5))


def test_what_was_computed_is_not_asked_again(stub: EmbeddingServiceStub, server: Server) -> None:
    texts = texts_of(2)
    first, second = embed(stub, texts), embed(stub, texts)
    assert first.vectors == second.vectors
    assert len(server.requests) == 1
    # The same server and model by another name, without prefixes: other settings, another model.
    assert embed(stub, texts, "prefixed").model_revision != first.model_revision


# Batches


def test_many_texts_go_in_several_requests_of_bounded_count(stub: EmbeddingServiceStub, server: Server) -> None:
    texts = texts_of(100)
    assert vectors(embed(stub, texts)) == pytest.approx(expected(texts), abs=1e-6)
    assert sorted(text for request in server.requests for text in request.texts) == sorted(texts)
    assert max(len(request.texts) for request in server.requests) == 32
    assert len(server.requests) == 4


def test_long_texts_go_in_requests_of_bounded_size(stub: EmbeddingServiceStub, server: Server) -> None:
    texts = texts_of(10, 6_000)
    assert vectors(embed(stub, texts)) == pytest.approx(expected(texts), abs=1e-6)
    assert max(len(request.texts) for request in server.requests) == 4


def test_requests_run_side_by_side_up_to_a_bound(stub: EmbeddingServiceStub, server: Server) -> None:
    together = threading.Barrier(REQUESTS)  # Which only as many as this pass, and break when one more comes alone.

    def meet(request: Request) -> Answer:
        together.wait(SECONDS)
        return embedded(request)

    server.always = meet
    embed(stub, texts_of(256))
    assert len(server.requests) == REQUESTS
    assert not together.broken


def test_calls_share_a_request_when_all_are_under_way(stub: EmbeddingServiceStub, server: Server) -> None:
    with held(stub, server) as (release, _):
        texts = texts_of(40)
        calls = [stub.Embed.future(request_of([text]), timeout=SECONDS) for text in texts]
        stub.GetModel(pb.GetModelRequest(), timeout=SECONDS)  # It comes after most of them on their one connection.
        assert len(server.requests) == REQUESTS
        release.set()
        answers = [vectors(call.result())[0] for call in calls]
    assert answers == pytest.approx(expected(texts), abs=1e-6)
    assert len(server.requests) < REQUESTS + len(texts)


@contextmanager
def held(stub: EmbeddingServiceStub, server: Server) -> Iterator[tuple[threading.Event, list[Any]]]:
    """As many calls as there are requests at a time, which the server answers once the event is set."""
    release, arrived = threading.Event(), threading.Semaphore(0)

    def hold(request: Request) -> Answer:
        arrived.release()
        release.wait(SECONDS)
        return embedded(request)

    server.behaviours = [hold] * REQUESTS
    calls = []
    for _ in range(REQUESTS):  # One by one: those that come together may share a request.
        calls.append(stub.Embed.future(request_of(texts_of(1)), timeout=SECONDS))
        assert arrived.acquire(timeout=SECONDS)
    try:
        yield release, calls
    finally:
        release.set()


def test_callers_that_are_gone_free_the_server(stub: EmbeddingServiceStub, server: Server) -> None:
    with held(stub, server) as (_, calls):
        for call in calls:
            call.cancel()
        # No place was free before, and the server still holds what it was asked.
        assert embed(stub, texts_of(1)).dimensions == DIMENSIONS


# The model


def test_the_model_is_described(home: Path, server: Server) -> None:
    references = f"{server.url}/?model=small", f"{server.url}?model=large&dimensions=4"
    with talking(home, *references) as (_, stub):
        before = stub.GetModel(pb.GetModelRequest(), timeout=SECONDS)
        assert (before.name, before.server, before.dimensions) == ("small", server.url, 0)
        assert (before.loaded, before.max_tokens, before.max_windows, before.window_overlap) == (False, 0, 1, 0)
        assert list(before.token_encodings) == []
        stub.Warm(pb.WarmRequest(), timeout=SECONDS)
        assert server.requests == []
        response = embed(stub, texts_of(1))
        after = stub.GetModel(pb.GetModelRequest(), timeout=SECONDS)
        assert (after.dimensions, after.loaded) == (DIMENSIONS, True)
        assert after.model_revision == before.model_revision == response.model_revision
        assert stub.GetModel(pb.GetModelRequest(model="large"), timeout=SECONDS).dimensions == 4


def test_long_texts_go_in_windows_of_the_characters_that_the_reference_says(home: Path, server: Server) -> None:
    with talking(home, f"{server.url}?model=small&window_characters=200&document_prefix=passage%3A%20") as (_, stub):
        assert stub.GetModel(pb.GetModelRequest(), timeout=SECONDS).max_windows == 64
        texts = [*texts_of(1), " ".join(map(str, range(300)))]
        for most in (3, 64):
            answer = stub.Embed(pb.EmbedRequest(texts=texts, max_windows=most), timeout=SECONDS)
            short, long = answer.texts
            assert (short.windows, short.truncated, long.truncated) == (1, False, most == 3)
            assert long.windows == 3 if most == 3 else 3 < long.windows < 64
            sent = sorted({text for request in server.requests for text in request.texts}, key=len)
            assert all(text.startswith("passage: ") and len(text) <= 200 for text in sent)
            parts = [texts[1][start:][:191] for start in range(0, long.windows * 168, 168)]
            assert {f"passage: {part}" for part in parts} <= set(sent)
            assert vectors(answer) == pytest.approx(
                expected([f"passage: {part}" for part in (texts[0], *parts)]), abs=1e-6
            )
        assert parts[-1].endswith(" 299")


def test_vectors_of_tokens_are_refused(stub: EmbeddingServiceStub, server: Server) -> None:
    request = pb.EmbedRequest(texts=texts_of(1), token_encoding=pb.TOKEN_ENCODING_INT8)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Embed(request, timeout=SECONDS)
    error = ServiceError.from_rpc(caught.value, "embedding")
    assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, "token_encoding")
    assert server.requests == []


def test_a_client_is_imported_by_the_first_use_and_no_model_ever(home: Path, server: Server) -> None:
    def imported() -> set[str]:
        lines = process.log.read_text().splitlines()
        return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}

    with talking(home, f"{server.url}?model=small", PYTHONPROFILEIMPORTTIME="1") as (process, stub):
        stub.GetModel(pb.GetModelRequest(), timeout=SECONDS)
        assert not {"httpx2", "tenacity", "numpy"} & imported()
        embed(stub, texts_of(1))
        assert "httpx2" in imported()
        assert not {"onnxruntime", "tokenizers"} & imported()


def test_an_idle_client_closes_its_connections_and_comes_back(home: Path, server: Server) -> None:
    with talking(home, f"{server.url}?model=small", HIPPOVAULT_EMBEDDING_IDLE_SECONDS="0.05") as (_, stub):
        embed(stub, texts_of(1))
        while stub.GetModel(pb.GetModelRequest(), timeout=SECONDS).loaded:
            pass
        assert embed(stub, texts_of(1)).dimensions == DIMENSIONS


def test_a_proxy_of_the_environment_is_used_but_not_in_the_clear(home: Path, server: Server) -> None:
    proxy = server.url.removesuffix("/v1")
    variables = dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"), proxy)
    references = "https://embeddings.invalid/v1?model=far", f"{server.url}?model=near"
    with talking(home, *references, no_proxy="", NO_PROXY="", **variables) as (_, stub):
        error = refusal(stub, texts_of(1))
        assert "the server https://embeddings.invalid/v1 cannot be reached (ProxyError)" in error.message
        assert {request.path for request in server.requests} == {"embeddings.invalid:443"}
        embed(stub, texts_of(1), "near")
        assert server.requests[-1].path == "/v1/embeddings"


# Servers that are wrong


WRONG: dict[str, tuple[Behaviour, str]] = {
    "garbage": (lambda _: Answer(b"<html>"), "something that is no JSON"),
    "empty": (lambda _: Answer(b""), "something that is no JSON"),
    "deep": (lambda _: Answer(b"[" * 50_000), "something that is no JSON"),
    "other JSON": (lambda _: Answer(b'{"error": 1}'), "JSON without a list `data`"),
    "a list": (lambda _: Answer(b"[]"), "JSON without a list `data`"),
    "too few": (lambda request: answer_of(items(request)[:1]), "1 vectors for 2 texts"),
    "too many": (lambda request: answer_of(items(request) * 2), "4 vectors for 2 texts"),
    "an index twice": (lambda request: answer_of(items(request)[:1] * 2), "`index` is not one of 0 to 1, each once"),
    "an index beyond": (lambda request: answer_of([{**item, "index": 7} for item in items(request)]), "`index` is not"),
    "no index": (lambda request: answer_of([{"embedding": [1.0]} for _ in request.texts]), "`index` is not one of"),
    "true for an index": (
        lambda request: answer_of([{**item, "index": bool(item["index"])} for item in items(request)]),
        "`index` is not one of",
    ),
    "no objects": (lambda request: answer_of([1.0 for _ in request.texts]), "`index` is not one of"),
    "no embedding": (lambda request: answer_of([{"index": i} for i, _ in enumerate(request.texts)]), "without an `emb"),
    "NaN": (every([float("nan")] * DIMENSIONS), "a number that is not finite, at index 0"),
    "NaN in base64": (every(encoded([float("nan")] * DIMENSIONS)), "a number that is not finite"),
    "infinity": (every([1.0] * (DIMENSIONS - 1) + [float("inf")]), "a number that is not finite"),
    "zeros": (every([0.0] * DIMENSIONS), "nothing but zeros"),
    "no numbers": (every([]), "no list of numbers nor their base64"),
    "words": (every(["1.0"] * DIMENSIONS), "no list of numbers nor their base64"),
    "null": (every(None), "no list of numbers nor their base64"),
    "lists": (every([[1.0], [1.0, 2.0]]), "no list of numbers nor their base64"),
    "no base64": (every("***"), "no list of numbers nor their base64"),
    "base64 of 5 bytes": (every("AAAAAAA="), "no list of numbers nor their base64"),
    "unlike dimensions": (
        lambda request: answer_of([{**item, "embedding": [1.0] * (3 + item["index"])} for item in items(request)]),
        "vectors of 3 and 4 dimensions in one answer",
    ),
    "without end": (lambda _: Answer(b"[" + b"[]," * 5_000_000 + b"[]]"), "answers more than"),
    "without end, in little": (
        lambda _: Answer(gzip.compress(b" " * 200_000_000, 1), headers={"Content-Encoding": "gzip"}),
        "answers more than",
    ),
    "a broken encoding": (
        lambda _: Answer(b"no gzip", headers={"Content-Encoding": "gzip"}),
        "answers in a broken encoding",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_answer_is_told_and_the_next_one_is_taken(
    stub: EmbeddingServiceStub, server: Server, wrong: str
) -> None:
    behaviour, problem = WRONG[wrong]
    server.always = behaviour
    assert problem in unavailable(stub, server)
    server.always = embedded
    assert embed(stub, texts_of(1)).dimensions == DIMENSIONS


def test_the_largest_vectors_are_taken_before_their_dimensions_are_known(home: Path, server: Server) -> None:
    server.always = every([-1.2345678901234567e-300] * MAX_DIMENSIONS)
    with talking(home, f"{server.url}?model=small") as (_, stub):
        assert embed(stub, texts_of(8)).dimensions == MAX_DIMENSIONS


def test_the_first_answer_is_not_larger_than_clients_take_either(home: Path, server: Server) -> None:
    server.always = every(encoded([1.0] * 4096))  # Before it nobody knows the dimensions.
    with talking(home, f"{server.url}?model=small") as (_, stub):
        error = refusal(stub, texts_of(256))
        assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, "texts")
        assert "bytes, an answer 3145728 at most" in error.message
        assert embed(stub, texts_of(2)).dimensions == 4096


def test_another_dimension_than_before_is_refused(stub: EmbeddingServiceStub, server: Server) -> None:
    embed(stub, texts_of(1))
    server.behaviours = [every([1.0] * 5)]
    assert f"vectors of 5 dimensions instead of {DIMENSIONS}" in unavailable(stub, server)
    server.behaviours = [every([1.0] * 5)]
    assert "vectors of 5 dimensions instead of 4" in unavailable(stub, server, "prefixed")
    assert embed(stub, texts_of(1)).dimensions == DIMENSIONS


# Servers that fail


@pytest.mark.parametrize("code", [500, 502, 503, 504, 529, 408, 429])
def test_a_passing_failure_is_tried_again(stub: EmbeddingServiceStub, server: Server, code: int) -> None:
    server.behaviours = [status(code)]
    texts = texts_of(2)
    assert vectors(embed(stub, texts)) == pytest.approx(expected(texts), abs=1e-6)
    assert len(server.requests) == 2


def test_a_lasting_failure_is_told_after_a_few_tries(stub: EmbeddingServiceStub, server: Server) -> None:
    server.always = status(500)
    assert "answers HTTP 500" in unavailable(stub, server)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    "behaviour", [status(500), status(401), status(404), every([1.0] * 5), lambda _: Answer(b"no JSON")]
)
def test_the_model_tells_of_the_last_failure_until_the_next_success(
    stub: EmbeddingServiceStub, server: Server, behaviour: Behaviour
) -> None:
    embed(stub, texts_of(1))
    assert load_error(stub) == ""
    server.always = behaviour
    assert load_error(stub) in refusal(stub, texts_of(1)).message
    assert load_error(stub).startswith(f"the server {server.url} answers ")
    server.always = embedded
    embed(stub, texts_of(1))
    assert load_error(stub) == ""


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_heeded(stub: EmbeddingServiceStub, server: Server, form: str) -> None:
    def limited(request: Request) -> Answer:
        # A date has whole seconds.
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
        return status(429, Retry_After="1" if form == "seconds" else date)(request)

    server.behaviours = [limited]
    assert embed(stub, texts_of(1)).dimensions == DIMENSIONS
    first, second = (request.at for request in server.requests)
    assert second - first >= 0.9


@pytest.mark.parametrize(
    "value", ["soon", "-1", "1e9", "Fri, 32 Jan 2100 25:61:61 GMT", "Fri, 01 Jan 2100 00:00:00 +99999999999999999999"]
)
def test_a_retry_after_that_says_nothing_is_as_good_as_none(
    stub: EmbeddingServiceStub, server: Server, value: str
) -> None:
    server.behaviours = [status(429, Retry_After=value)]
    assert embed(stub, texts_of(1)).dimensions == DIMENSIONS
    first, second = (request.at for request in server.requests)
    assert second - first < SECONDS / 2


def test_a_wait_beyond_the_deadline_is_not_begun(home: Path, server: Server) -> None:
    server.always = status(429, Retry_After="60")
    with talking(home, f"{server.url}?model=small") as (_, stub):
        started = time.monotonic()
        first = refusal(stub, texts_of(1))
        # Nobody else asks before the time is up.
        second = refusal(stub, texts_of(1))
        assert time.monotonic() - started < SECONDS / 2
        assert (first.code, second.code) == (grpc.StatusCode.UNAVAILABLE,) * 2
        assert "answers HTTP 429: it is asked too often, or its quota is used up" in first.message
        assert first.retry_seconds == 60
        assert 50 < second.retry_seconds <= 60
        assert len(server.requests) == 1


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_key_is_told_by_its_variable(stub: EmbeddingServiceStub, server: Server, code: int) -> None:
    server.always = status(code)
    told = unavailable(stub, server)
    assert f"answers HTTP {code}: it refuses the key in the environment variable REMOTE_KEY" in told
    assert "name the environment variable that has it as key_variable" in unavailable(stub, server, "keyless")
    assert len(server.requests) == 2


@pytest.mark.parametrize("key", ["", "  ", "sk-secret-4711\nX-Injected: 1", "sk-secret-4711-é"])
def test_a_key_that_is_none_is_told_without_it(home: Path, server: Server, key: str) -> None:
    with talking(home, f"{server.url}?model=small&key_variable=REMOTE_KEY", REMOTE_KEY=key) as (_, stub):
        error = refusal(stub, texts_of(1))
        assert error.code is grpc.StatusCode.UNAVAILABLE
        assert "the environment variable REMOTE_KEY" in error.message
        assert "REMOTE_KEY" in stub.GetModel(pb.GetModelRequest(), timeout=SECONDS).load_error
    assert server.requests == []


def test_an_unknown_model_of_the_server_is_told(stub: EmbeddingServiceStub, server: Server) -> None:
    server.always = status(404)
    assert "answers HTTP 404: there may be no such model" in unavailable(stub, server)
    assert len(server.requests) == 1


def test_a_redirect_is_not_followed(stub: EmbeddingServiceStub, server: Server) -> None:
    with server_on() as other:
        server.always = status(307, Location=f"{other.url}/embeddings")
        assert "answers HTTP 307: redirects are not followed" in unavailable(stub, server)
        assert other.requests == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", [400, 413, 422])
def test_only_the_text_that_is_too_long_is_refused(stub: EmbeddingServiceStub, server: Server, code: int) -> None:
    server.always = short_ones(code)
    texts = texts_of(20)
    texts[13] = texts[13].ljust(501, "x")
    error = refusal(stub, texts)
    assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, "texts[13]")
    assert f"the server {server.url} refused it with HTTP {code}; it may be too long" in error.message
    del texts[13]
    server.requests.clear()
    assert vectors(embed(stub, texts)) == pytest.approx(expected(texts), abs=1e-6)
    assert server.requests == []  # The others were embedded then.


def test_servers_that_take_fewer_texts_at_a_time_are_served(stub: EmbeddingServiceStub, server: Server) -> None:
    server.always = lambda request: status(413)(request) if len(request.texts) > 5 else embedded(request)
    texts = texts_of(32)
    assert vectors(embed(stub, texts)) == pytest.approx(expected(texts), abs=1e-6)


def test_a_server_that_hangs_costs_the_deadline_and_no_place(stub: EmbeddingServiceStub, server: Server) -> None:
    release = threading.Event()

    def hang(request: Request) -> Answer:
        release.wait(SECONDS)
        return embedded(request)

    server.always = hang
    with pytest.raises(grpc.RpcError):
        stub.Embed(request_of(texts_of(1)), timeout=0.1)
    assert load_error(stub) == ""  # The caller was hurried.
    calls = [stub.Embed.future(request_of(texts_of(1)), timeout=2.1) for _ in range(2 * REQUESTS)]
    for call in calls:
        with pytest.raises(grpc.RpcError) as caught:
            call.result()
        assert ServiceError.from_rpc(caught.value, "embedding").code is grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: load_error(stub).startswith(f"the server {server.url} did not answer within 2."))
    server.always = embedded
    assert embed(stub, texts_of(1)).dimensions == DIMENSIONS
    assert load_error(stub) == ""
    release.set()


def test_a_connection_that_breaks_is_tried_again(stub: EmbeddingServiceStub, server: Server) -> None:
    def broken(_request: Request) -> Answer:
        raise ConnectionResetError

    server.behaviours = [broken]
    assert embed(stub, texts_of(1)).dimensions == DIMENSIONS


def test_a_server_that_is_down_is_named_and_used_once_it_is_up(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    reference = f"http://127.0.0.1:{port}/v1?model=small"
    with talking(home, reference) as (process, stub):
        error = refusal(stub, texts_of(1))
        assert error.code is grpc.StatusCode.UNAVAILABLE
        assert f"the server http://127.0.0.1:{port}/v1 cannot be reached (ConnectError" in error.message
        assert load_error(stub) in error.message
        assert (
            health_of(process) == health_pb2.HealthCheckResponse.SERVING
        )  # Who heeds health would never find out that the server is back.
        with server_on(port):
            assert embed(stub, texts_of(1)).dimensions == DIMENSIONS
            assert load_error(stub) == ""


def test_sigterm_waits_for_the_server_and_ends_with_0(home: Path, server: Server) -> None:
    release, arrived = threading.Event(), threading.Event()

    def slow(request: Request) -> Answer:
        arrived.set()
        release.wait(SECONDS)
        return embedded(request)

    server.always = slow
    with talking(home, f"{server.url}?model=small") as (process, stub):
        call = stub.Embed.future(request_of(texts_of(1)), timeout=SECONDS)
        assert arrived.wait(SECONDS)
        process.popen.send_signal(signal.SIGTERM)
        release.set()
        assert call.result().dimensions == DIMENSIONS
        assert process.popen.wait(SECONDS) == 0
        assert "Traceback" not in process.log.read_text()


# A memory over it


def test_a_memory_is_found_by_the_vectors_of_a_server(home: Path, server: Server) -> None:
    variables = {
        "HIPPOVAULT_EMBEDDING_MODEL": f"{server.url}?model=small",
        "HIPPOVAULT_STORAGE_DIMENSIONS": str(DIMENSIONS),
    }
    contents = texts_of(3)
    with running(home, variables) as stack, stack.client() as client:
        # Nobody knows the dimensions yet.
        assert all(service.serving for service in client.Ping(memory_pb.PingRequest(), timeout=SECONDS).services)
        for content in contents:
            client.Remember(memory_pb.RememberRequest(content=content), timeout=SECONDS)
        request = memory_pb.RecallRequest(query=contents[1], mode=memory_pb.RECALL_MODE_DENSE, limit=1)
        assert [hit.memory.content for hit in client.Recall(request, timeout=SECONDS).hits] == [contents[1]]
        server.always = short_ones(413)
        check_that_a_long_memory_is_refused_alone(client)
        server.always = status(500)
        request = memory_pb.RecallRequest(query=f"what is {contents[2]}", mode=memory_pb.RECALL_MODE_HYBRID)
        degraded = client.Recall(request, timeout=SECONDS)
        assert contents[2] in [hit.memory.content for hit in degraded.hits]
        assert f"the server {server.url} answers HTTP 500" in degraded.degradation.reason


def check_that_a_long_memory_is_refused_alone(client: MemoryServiceStub) -> None:
    long = [text.ljust(501, "x") for text in texts_of(2)]
    items = [memory_pb.RememberRequest(content=content) for content in (*texts_of(1), *long, *texts_of(1))]
    with pytest.raises(grpc.RpcError) as caught:
        client.Remember(items[1], timeout=SECONDS)
    error = ServiceError.from_rpc(caught.value, "gateway")
    assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, "content")
    assert error.message.startswith("content: the server ")
    with pytest.raises(grpc.RpcError) as caught:
        client.Recall(memory_pb.RecallRequest(query=long[0]), timeout=SECONDS)
    assert ServiceError.from_rpc(caught.value, "gateway").field == "query"
    results = client.BatchRemember(memory_pb.BatchRememberRequest(requests=items), timeout=SECONDS).results
    assert [result.error.field for result in results] == ["", "content", "content", ""]
    assert [result.response.windows for result in results] == [1, 0, 0, 1]
