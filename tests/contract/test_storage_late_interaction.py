"""Token similarities: what a search tells of a query's tokens, against a plain computation over the codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from hippovault.storage.v1 import storage_pb2 as pb
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from hippovault_storage import checks
from support.processes import Process
from support.storage import DIMENSIONS, SECONDS, Code, Filter, Store, connected, near, refused, serving, vector

Floats = npt.NDArray[np.float64]

RANDOM = np.random.default_rng(5)
ENCODINGS = ("float32", "int8", "int4", "sign")


@pytest.fixture(scope="module")
def process(module_home: Path) -> Iterator[Process]:
    with serving(module_home) as served:
        yield served
        assert served.stop() == 0


@pytest.fixture(scope="module")
def stub(process: Process) -> Iterator[StorageServiceStub]:
    with connected(process) as served:
        yield served


@pytest.fixture
def store(stub: StorageServiceStub) -> Store:
    return Store(stub)


def some(number: int) -> Floats:
    """Vectors of tokens, of lengths that differ."""
    return RANDOM.normal(size=(number, DIMENSIONS)) * RANDOM.uniform(0.1, 10, size=(number, 1))


def encoded(tokens: Floats, encoding: str) -> tuple[pb.TokenCodes, Floats]:
    """The codes of tokens, as embedding.proto tells them, and the vectors that they stand for."""
    if encoding == "float32":
        return pb.TokenCodes(encoding=encoding, codes=tokens.astype("<f4").tobytes()), tokens
    if encoding == "sign":
        signs = np.where(tokens > 0, 1.0, -1.0)
        numbers = [sum(1 << place for place in range(DIMENSIONS) if row[place] > 0) for row in signs.tolist()]
        codes = b"".join(number.to_bytes(DIMENSIONS // 8, "little") for number in numbers)
        return pb.TokenCodes(encoding=encoding, codes=codes), signs
    largest = {"int8": 127, "int4": 7}[encoding]
    integers = np.rint(tokens * largest / np.abs(tokens).max(axis=1, keepdims=True))
    if encoding == "int8":
        return pb.TokenCodes(encoding=encoding, codes=integers.astype(np.int8).tobytes()), integers
    pairs = integers.astype(int).reshape(-1, 2).tolist()
    return pb.TokenCodes(encoding=encoding, codes=bytes((low & 15) | (high & 15) << 4 for low, high in pairs)), integers


def best(query: Floats, tokens: Floats) -> list[float]:
    """The largest cosine of each of the query's tokens to one of the others."""
    query, tokens = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (query, tokens))
    nearest: list[float] = (query @ tokens.T).max(axis=1).tolist()
    return nearest


def as_bytes(tokens: Floats) -> bytes:
    return tokens.astype("<f4").tobytes()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_nearest_token_counts_for_each_of_the_query(store: Store, encoding: str) -> None:
    query, expected = some(7), {}
    for number in (1, 35, 3, checks.MAX_TOKEN_CODES_BYTES // (DIMENSIONS * 4)):
        codes, tokens = encoded(some(number), encoding)
        store.put(f"zebra {number}", token_codes=codes)
        expected[f"zebra {number}"] = pytest.approx(best(query, tokens), abs=1e-5)
    assert store.similarities("zebra", as_bytes(query)) == expected


def test_encodings_may_be_mixed_and_more_memories_than_are_read_at_once(store: Store) -> None:
    query, expected = some(2), {}
    for number in range(40):
        codes, tokens = encoded(some(1 + number % 3), ENCODINGS[number % len(ENCODINGS)])
        store.put(f"zebra {number}", token_codes=codes)
        expected[f"zebra {number}"] = pytest.approx(best(query, tokens), abs=1e-5)
    assert store.similarities("zebra", as_bytes(query)) == expected


@pytest.mark.parametrize(
    "codes",
    [
        None,
        pb.TokenCodes(encoding="int8", codes=bytes(DIMENSIONS - 1)),
        pb.TokenCodes(encoding="int4", codes=bytes(DIMENSIONS)[:-1]),
        pb.TokenCodes(encoding="sign", codes=b"1"),
        pb.TokenCodes(encoding="float32", codes=bytes(DIMENSIONS)),
        pb.TokenCodes(encoding="int2", codes=bytes(DIMENSIONS)),
    ],
)
def test_codes_that_are_absent_or_cannot_be_read_are_not_compared(store: Store, codes: pb.TokenCodes | None) -> None:
    store.put("zebra with", token_codes=encoded(some(1), "sign")[0])
    store.put("zebra without", token_codes=codes)
    told = store.similarities("zebra", vector(1) * 3)
    assert (len(told["zebra with"]), told["zebra without"]) == (3, [])


def test_tokens_that_point_nowhere_are_near_to_nothing(store: Store) -> None:
    nowhere = {
        "int8": bytes(DIMENSIONS),
        "int4": bytes(DIMENSIONS // 2),
        "float32": np.full(DIMENSIONS, np.nan, "<f4").tobytes() + np.full(DIMENSIONS, 3e38, "<f4").tobytes(),
    }
    for encoding, codes in nowhere.items():
        store.put(encoding, token_codes=pb.TokenCodes(encoding=encoding, codes=codes))
    for encoding in nowhere:
        assert store.similarities(encoding, vector(1) + bytes(4 * DIMENSIONS)) == {encoding: [0, 0]}
    store.put("zebra", token_codes=encoded(some(1), "int8")[0])
    assert store.similarities("zebra", bytes(4 * DIMENSIONS)) == {"zebra": [0]}


def test_each_arm_alone_and_both_together_compare_what_the_filter_lets_through(store: Store) -> None:
    for number, content in enumerate(["zebra one", "gnu two", "zebra three", "zebra four"]):
        codes = pb.TokenCodes(encoding="float32", codes=near(number / 4))
        store.put(content, near(number / 4), codes, tags=["kept"] if number != 2 else [])
    request = pb.SearchMemoriesRequest(
        namespace=store.namespace,
        filter=Filter(tags_all=["kept"]),
        late_interaction=pb.LateInteraction(token_vectors=vector(2), depth=1000),
        whole=1,
    )

    def told() -> dict[int, float]:
        hits = store.stub.SearchMemories(request, timeout=SECONDS).hits
        return {hit.id: np.frombuffer(hit.token_similarities, "<f4").item() for hit in hits}

    ids = {memory.content: memory.id for memory in store.page().memories}
    request.dense.CopyFrom(pb.DenseArm(vector=vector(1), k=2))
    assert told() == {ids["zebra four"]: 0.75, ids["gnu two"]: 0.25}
    request.keyword.CopyFrom(pb.KeywordArm(query="zebra", k=10))
    assert told() == {ids["zebra four"]: 0.75, ids["gnu two"]: 0.25, ids["zebra one"]: 0}
    request.ClearField("dense")
    assert told() == {ids["zebra four"]: 0.75, ids["zebra one"]: 0}


def test_only_hits_of_the_depth_are_compared_and_only_where_asked(store: Store) -> None:
    for number in range(5):
        store.put(f"zebra {number}", near(number / 5), encoded(some(1), "int8")[0])
    request = pb.SearchMemoriesRequest(
        namespace=store.namespace,
        dense=pb.DenseArm(vector=vector(1), k=5),
        late_interaction=pb.LateInteraction(token_vectors=vector(1), depth=2),
    )
    response = store.stub.SearchMemories(request, timeout=SECONDS)
    assert sorted(hit.dense.rank for hit in response.hits if hit.token_similarities) == [1, 2]
    assert response.late_interaction_time.ToNanoseconds() > 0
    assert response.dense_time.ToNanoseconds() > 0
    assert not response.HasField("keyword_time")
    request.ClearField("late_interaction")
    response = store.stub.SearchMemories(request, timeout=SECONDS)
    assert not any(hit.token_similarities for hit in response.hits)
    assert not response.HasField("late_interaction_time")


def test_an_answer_with_many_similarities_stays_within_its_bytes(store: Store) -> None:
    codes = encoded(some(1), "sign")[0]
    requests = [store.request(f"zebra {number} {'x' * 3000}", token_codes=codes) for number in range(900)]
    assert all(result.HasField("done") for result in store.batch(*requests))
    request = pb.SearchMemoriesRequest(
        namespace=store.namespace,
        keyword=pb.KeywordArm(query="zebra", k=1000),
        late_interaction=pb.LateInteraction(token_vectors=vector(1) * checks.MAX_QUERY_TOKENS, depth=1000),
    )
    hits = store.stub.SearchMemories(request, timeout=SECONDS).hits
    assert len(hits) == 900
    compared = [hit for hit in hits if hit.token_similarities]
    assert 500 < len(compared) < 900
    assert all(len(hit.token_similarities) == 4 * checks.MAX_QUERY_TOKENS for hit in compared)
    assert max(hit.keyword.rank for hit in compared) == len(compared)


def test_of_long_memories_a_long_query_is_compared_with_the_first_tokens(store: Store, process: Process) -> None:
    size, number = DIMENSIONS // 8, 64
    against = bytes(checks.MAX_TOKEN_CODES_BYTES // size * size - size)
    for place in range(number):
        codes = bytes([255]) * size + against if place % 2 else against + bytes([255]) * size
        store.put(f"zebra {place}", token_codes=pb.TokenCodes(encoding="sign", codes=codes))
    query = vector(*[1] * DIMENSIONS)
    short = store.similarities("zebra", query)
    assert {round(nearest) for (nearest,) in short.values()} == {1}
    before = process.kibibytes("VmHWM")
    long = store.similarities("zebra", query * checks.MAX_QUERY_TOKENS)
    assert {content: {*map(round, nearest)} for content, nearest in long.items()} == {
        f"zebra {place}": {1 if place % 2 else -1} for place in range(number)
    }
    assert process.kibibytes("VmHWM") - before < 200 * 1024


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("token_vectors", {"token_vectors": b""}),
        ("token_vectors", {"token_vectors": vector(1)[:-4]}),
        ("token_vectors", {"token_vectors": vector(1) * (checks.MAX_QUERY_TOKENS + 1)}),
        ("token_vectors", {"token_vectors": np.full(DIMENSIONS, np.inf, "<f4").tobytes()}),
        ("depth", {"depth": 0}),
        ("depth", {"depth": 1001}),
        ("model_revision", {"model_revision": "x" * 257}),
    ],
)
def test_what_is_asked_has_its_bounds(store: Store, field: str, asked: dict[str, int | str | bytes]) -> None:
    given = {"token_vectors": vector(1), "depth": 1, **asked}
    request = pb.SearchMemoriesRequest(
        namespace=store.namespace,
        keyword=pb.KeywordArm(query="zebra", k=1),
        late_interaction=pb.LateInteraction(**given),  # type: ignore[arg-type]
    )
    with refused(Code.INVALID_ARGUMENT, f"late_interaction.{field}"):
        store.stub.SearchMemories(request, timeout=SECONDS)


def test_tokens_of_another_model_are_refused(store: Store) -> None:
    store.put("zebra", token_codes=encoded(some(1), "int8")[0])
    assert store.similarities("zebra", vector(1), model_revision="model-1")["zebra"]
    with refused(Code.FAILED_PRECONDITION, reason="MODEL_MISMATCH"):
        store.similarities("zebra", vector(1), model_revision="model-2")
