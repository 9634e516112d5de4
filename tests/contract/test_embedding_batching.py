"""Calls share batches, take turns and are refused in time; what is known is not computed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import numpy.typing as npt
import pytest

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceStub
from hippovault_chassis.errors import ServiceError
from support.embedding import SECONDS, connected, embed, events, get_model, refusal, serving, vectors
from support.processes import Process
from support.waiting import until

LONG = "the team talks about the weather and the plans of the week " * 30
QUERY, DOCUMENT = pb.INPUT_TYPE_QUERY, pb.INPUT_TYPE_DOCUMENT
Floats = npt.NDArray[np.floating]


@pytest.fixture(scope="module")
def process(module_home: Path) -> Iterator[Process]:
    with serving(module_home, "--log-level", "debug") as process, connected(process) as stub:
        embed(stub, ["x"])
        yield process


@pytest.fixture(scope="module")
def stub(process: Process) -> Iterator[EmbeddingServiceStub]:
    with connected(process) as stub:
        yield stub


def inferences(process: Process) -> int:
    return len(events(process, "inference"))


def test_callers_who_wait_share_batches(process: Process, stub: EmbeddingServiceStub) -> None:
    before = inferences(process)
    first = stub.Embed.future(pb.EmbedRequest(texts=[LONG]), timeout=SECONDS)
    calls = [stub.Embed.future(pb.EmbedRequest(texts=[f"note {n}"]), timeout=SECONDS) for n in range(40)]
    together = np.concatenate([vectors(call.result()) for call in calls])
    assert first.result().texts
    # Each alone would be one. A few may begin before the others have come.
    assert inferences(process) - before < 20
    alone = vectors(embed(stub, ["note 7."]))[0]
    assert int(np.argmax(together @ alone)) == 7


def test_batches_keep_to_the_tokens_that_are_told(process: Process, stub: EmbeddingServiceStub) -> None:
    most = get_model(stub).max_batch_tokens
    embed(stub, [f"{n} " + "word " * (n * 13 % 100) for n in range(40)])
    assert all(int(str(event["tokens"])) <= most for event in events(process, "inference"))


def test_queries_are_answered_while_documents_are_computed(stub: EmbeddingServiceStub) -> None:
    bulk = stub.Embed.future(pb.EmbedRequest(texts=[f"{n} {LONG}" for n in range(60)]), timeout=SECONDS)
    for n in range(5):
        answer = stub.Embed(pb.EmbedRequest(texts=[f"which {n}?"], input_type=QUERY), timeout=SECONDS)
        assert answer.dimensions
    assert not bulk.done()
    bulk.cancel()


def test_every_limit_is_told(stub: EmbeddingServiceStub) -> None:
    told = get_model(stub)
    assert (told.max_texts, told.max_text_bytes, told.max_tokens) == (256, 65_536, 256)
    assert (told.max_windows, told.window_overlap) == (64, 32)
    assert 0 < told.max_batch_tokens < told.max_queue_tokens
    assert told.max_answer_bytes == 3 * 1024 * 1024
    assert list(told.token_encodings) == pb.TokenEncoding.values()[1:]
    (listed,) = stub.ListModels(pb.ListModelsRequest(), timeout=SECONDS).models
    assert listed == told


# The cache


def test_what_is_known_costs_no_inference_and_says_so(process: Process, stub: EmbeddingServiceStub) -> None:
    first = embed(stub, ["one to remember", "and another"])
    before = inferences(process)
    again = embed(stub, ["and another", "one to remember"])
    assert inferences(process) == before
    assert [info.cached for info in (*first.texts, *again.texts)] == [False, False, True, True]
    assert np.array_equal(vectors(again), vectors(first)[::-1])
    assert again.inference_time.ToNanoseconds() == 0
    assert [info.token_count for info in again.texts] == [info.token_count for info in reversed(first.texts)]


def test_of_a_mixed_request_only_what_is_new_is_computed(process: Process, stub: EmbeddingServiceStub) -> None:
    known = embed(stub, ["known well"])
    before = inferences(process)
    mixed = embed(stub, ["brand new", "known well"])
    assert [info.cached for info in mixed.texts] == [False, True]
    assert vectors(mixed)[1] == pytest.approx(vectors(known)[0])
    assert events(process, "inference")[before:][0]["texts"] == 1


def test_options_are_told_apart(stub: EmbeddingServiceStub) -> None:
    requests = [
        pb.EmbedRequest(texts=["options"], input_type=QUERY),
        pb.EmbedRequest(texts=["options"], input_type=DOCUMENT),
        pb.EmbedRequest(texts=["options"], max_windows=2),
        pb.EmbedRequest(texts=["options"], token_encoding=pb.TOKEN_ENCODING_SIGN),
    ]
    for cached in (False, True):
        assert [stub.Embed(each, timeout=SECONDS).texts[0].cached for each in requests] == [cached] * len(requests)


def test_the_cache_can_be_switched_off(home: Path) -> None:
    with serving(home, "--cache-mebibytes", "0", "--log-level", "debug") as process, connected(process) as stub:
        for times in (1, 2):
            assert not embed(stub, ["x"]).texts[0].cached
            assert inferences(process) == times


# Windows and the vectors of tokens


def test_a_fact_at_the_end_of_a_long_text_is_found(stub: EmbeddingServiceStub) -> None:
    text = LONG * 3 + "The spare key of the boat house hangs behind the blue door."
    query = vectors(embed(stub, ["Where is the key of the boat house?"]))[0]
    cut = embed(stub, [text])
    whole = stub.Embed(pb.EmbedRequest(texts=["short", text], max_windows=64), timeout=SECONDS)
    assert (cut.texts[0].windows, cut.texts[0].truncated) == (1, True)
    short, long = whole.texts
    assert (short.windows, long.truncated) == (1, False)
    rows = vectors(whole)
    assert len(rows) == 1 + long.windows
    assert float(np.max(rows[1:] @ query)) > float(vectors(cut)[0] @ query) + 0.2
    assert int(np.argmax(rows[1:] @ query)) == long.windows - 1
    # The first window is what the cut text is.
    assert rows[1] == pytest.approx(vectors(cut)[0], abs=1e-4)


def token_vectors(info: pb.TextInfo, encoding: pb.TokenEncoding.ValueType) -> Floats:
    """Decodes what embedding.proto says of each encoding, tokens * dimensions."""
    codes = np.frombuffer(info.token_codes, np.uint8)
    if encoding == pb.TOKEN_ENCODING_FLOAT32:
        return codes.view("<f4").reshape(-1, 384)
    if encoding == pb.TOKEN_ENCODING_INT8:
        return codes.view(np.int8).reshape(-1, 384).astype(float)
    if encoding == pb.TOKEN_ENCODING_SIGN:
        return np.unpackbits(codes, bitorder="little").reshape(-1, 384) * 2.0 - 1
    nibbles = np.stack([codes & 15, codes >> 4], axis=1).reshape(-1, 384).astype(int)
    return np.where(nibbles > 7, nibbles - 16, nibbles).astype(float)


def coded(stub: EmbeddingServiceStub, text: str, encoding: pb.TokenEncoding.ValueType, windows: int = 1) -> Floats:
    request = pb.EmbedRequest(texts=[text], max_windows=windows, token_encoding=encoding)
    answer = stub.Embed(request, timeout=SECONDS)
    return token_vectors(answer.texts[0], encoding)


def cosines(one: Floats, other: Floats) -> Floats:
    products: Floats = np.sum(one * other, axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    return products


@pytest.mark.parametrize(
    ("encoding", "least"),
    [(pb.TOKEN_ENCODING_INT8, 0.999), (pb.TOKEN_ENCODING_INT4, 0.98), (pb.TOKEN_ENCODING_SIGN, 0.7)],
)
def test_codes_point_where_the_vectors_of_the_tokens_do(
    stub: EmbeddingServiceStub, encoding: pb.TokenEncoding.ValueType, least: float
) -> None:
    text = "Our data lives in PostgreSQL, and the cat sleeps on the sofa."
    exact = coded(stub, text, pb.TOKEN_ENCODING_FLOAT32)
    decoded = coded(stub, text, encoding)
    assert decoded.shape == exact.shape
    assert cosines(exact, decoded).min() > least
    if encoding == pb.TOKEN_ENCODING_SIGN:
        assert np.array_equal(decoded > 0, exact > 0)


def test_codes_are_of_the_text_alone_and_of_the_same_inference(process: Process, stub: EmbeddingServiceStub) -> None:
    before = inferences(process)
    request = pb.EmbedRequest(texts=["hello hippo"], token_encoding=pb.TOKEN_ENCODING_FLOAT32)
    answer = stub.Embed(request, timeout=SECONDS)
    assert inferences(process) == before + 1
    tokens = token_vectors(answer.texts[0], pb.TOKEN_ENCODING_FLOAT32)
    # [CLS] and [SEP] count, but are not told; without them the mean is still about the vector.
    assert len(tokens) == answer.texts[0].token_count - 2
    assert cosines(tokens.mean(axis=0, keepdims=True), vectors(answer))[0] > 0.9


def test_tokens_of_two_windows_are_told_once(stub: EmbeddingServiceStub) -> None:
    text = " ".join(f"word{n}" for n in range(300))
    one, many = (coded(stub, text, pb.TOKEN_ENCODING_FLOAT32, windows) for windows in (1, 64))
    request = pb.EmbedRequest(texts=[text], max_windows=64)
    info = stub.Embed(request, timeout=SECONDS).texts[0]
    assert len(many) == info.token_count - 2 * info.windows - 31 * (info.windows - 1)
    assert one == pytest.approx(many[: len(one)], abs=1e-3)


# What is refused


def test_an_answer_that_no_client_could_receive_is_refused_before_it_is_computed(
    process: Process, stub: EmbeddingServiceStub
) -> None:
    before = inferences(process)
    for texts, max_windows in (([f"{n} {LONG}" for n in range(9)], 1), (["a " * 3000], 64)):
        request = pb.EmbedRequest(texts=texts, max_windows=max_windows, token_encoding=pb.TOKEN_ENCODING_FLOAT32)
        error = refusal(stub, request)
        assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, "texts")
        assert "or more bytes, an answer 3145728 at most" in error.message
    assert inferences(process) == before


def test_a_full_queue_and_a_deadline_too_short_are_told_with_when_to_try_again(home: Path) -> None:
    flags = ("--max-queue-tokens", "5000", "--cache-mebibytes", "0")
    with serving(home, *flags) as process, connected(process) as stub:
        embed(stub, [LONG] * 8)  # By which the speed is known.
        bulk = stub.Embed.future(pb.EmbedRequest(texts=[LONG] * 200), timeout=SECONDS)
        until(lambda: full(stub))
        error = refusal(stub, pb.EmbedRequest(texts=["one more"]))
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
        assert "at most 5000 may" in error.message
        assert error.retry_seconds > 0
        assert stub.Embed(pb.EmbedRequest(texts=["a query"], input_type=QUERY), timeout=SECONDS).dimensions
        bulk.cancel()


def full(stub: EmbeddingServiceStub) -> bool:
    try:
        embed(stub, ["small"])
    except grpc.RpcError as error:
        return ServiceError.from_rpc(error, "embedding").reason == "QUEUE_FULL"
    return False


def test_what_cannot_be_done_in_time_is_refused_at_once(home: Path) -> None:
    with serving(home, "--cache-mebibytes", "0", "--log-level", "debug") as process, connected(process) as stub:
        embed(stub, [LONG] * 8)
        before = inferences(process)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Embed(pb.EmbedRequest(texts=[LONG] * 200), timeout=3)
        error = ServiceError.from_rpc(caught.value, "embedding")
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "DEADLINE_TOO_SHORT")
        assert "send fewer or shorter texts, or allow more time" in error.message
        assert error.retry_seconds == 0
        assert inferences(process) == before
