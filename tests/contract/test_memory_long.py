"""Texts far beyond the model's window: every part of them is found by meaning, whichever door they came through."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceStub
from support.command import in_process
from support.processes import environment
from support.stack import Stack

SECONDS = 100
BYTES = 40_000
PARTS = (
    ("The committee", "A northern port", "One of the carriers", "The quarterly review", "A clerk", "Nobody"),
    ("noted", "reported", "disputed", "expected", "welcomed"),
    ("steady demand", "longer contracts", "higher figures", "fewer vessels", "another delay"),
    ("across the region", "for the spring", "after a long debate", "in spite of the weather", "once more"),
)
FACT = (
    "The old pirate buried a chest of gold coins and jewels. He dug a deep hole under the oak behind the church, put "
    "his loot into it, covered it with stones, and drew a map on which a red cross marks the spot. His crew searched "
    "the island for the gold for seven years, with spades and lanterns, and never came upon the treasure."
)
QUESTION = "Where can riches be unearthed?"
OTHERS = ("The weather was fine on Sunday.", "Mia likes tea with lemon.", "Deployments run on GitHub Actions.")
BEYOND = "7 " * 32_000
"""More tokens than 64 windows hold."""


def filler() -> str:
    """Returns running text without repeated sentences, the same for each test, so that the embedder's cache has it."""
    return ". ".join(map(" ".join, itertools.product(*PARTS)))[:BYTES]


LONG = f"{filler()}. {FACT}"
HEAD = LONG[:2_000]
"""More than the first window."""


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Iterator[MemoryServiceStub]:
    with stack.client() as client:
        yield client


@pytest.fixture
def namespace(request: pytest.FixtureRequest, gateway: MemoryServiceStub) -> str:
    """A namespace with other memories, one of which is the head of the long text."""
    name = f"long {request.node.name}"
    for content in (*OTHERS, HEAD):
        gateway.Remember(pb.RememberRequest(namespace=name, content=content), timeout=SECONDS)
    return name


def check_found(gateway: MemoryServiceStub, namespace: str) -> None:
    """The long text answers a question that has no word in common with it, far better than its head does."""
    assert not set(QUESTION.lower().strip("?").split()) & set(LONG.lower().replace(".", " ").split())
    request = pb.RecallRequest(namespace=namespace, query=QUESTION, mode=pb.RECALL_MODE_DENSE, no_surprise_boost=True)
    best, *others = gateway.Recall(request, timeout=SECONDS).hits
    assert best.memory.content == LONG
    [head] = [hit for hit in others if hit.memory.content == HEAD]
    assert best.cosine_similarity > head.cosine_similarity + 0.1


def test_the_end_of_a_long_memory_is_found_by_meaning(gateway: MemoryServiceStub, namespace: str) -> None:
    response = gateway.Remember(pb.RememberRequest(namespace=namespace, content=LONG), timeout=SECONDS)
    assert response.windows > 20
    assert not response.truncated
    check_found(gateway, namespace)
    again = gateway.Remember(pb.RememberRequest(namespace=namespace, content=LONG), timeout=SECONDS)
    assert (again.outcome, again.windows, again.truncated) == (memory_pb2.WRITE_OUTCOME_EXISTED, 0, False)
    short = gateway.Remember(pb.RememberRequest(namespace=namespace, content="Short."), timeout=SECONDS)
    assert (short.windows, short.truncated) == (1, False)


def test_so_is_that_of_new_content(gateway: MemoryServiceStub, namespace: str) -> None:
    memory = gateway.Remember(
        pb.RememberRequest(namespace=namespace, content="To be replaced."), timeout=SECONDS
    ).memory
    update = pb.UpdateMemoryRequest(
        namespace=namespace,
        ref=memory_pb2.MemoryRef(id=memory.id),
        memory=memory_pb2.Memory(content=LONG),
        update_mask=FieldMask(paths=["content"]),
    )
    response = gateway.UpdateMemory(update, timeout=SECONDS)
    assert response.windows > 20
    assert not response.truncated
    check_found(gateway, namespace)
    update.memory.content = "Short again."
    assert gateway.UpdateMemory(update, timeout=SECONDS).windows == 1
    request = pb.RecallRequest(namespace=namespace, query=QUESTION, mode=pb.RECALL_MODE_DENSE, no_surprise_boost=True)
    hits = gateway.Recall(request, timeout=SECONDS).hits
    assert max(hit.cosine_similarity for hit in hits) < 0.2  # Nothing is left of the windows.


def test_so_is_that_of_one_in_a_batch(gateway: MemoryServiceStub, namespace: str) -> None:
    contents = ["Bread needs flour.", LONG, "The printer is out of toner."]
    items = [pb.RememberRequest(namespace=namespace, content=content) for content in contents]
    results = gateway.BatchRemember(pb.BatchRememberRequest(requests=items), timeout=SECONDS).results
    assert [result.response.memory.content for result in results] == contents
    assert [result.response.windows > 20 for result in results] == [False, True, False]
    check_found(gateway, namespace)


def test_so_is_that_of_an_imported_one_and_what_is_too_long_is_told(
    stack: Stack,
    gateway: MemoryServiceStub,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = in_process(environment(stack.home), monkeypatch, capsys)
    file = tmp_path / "memories.jsonl"
    lines = [{"content": content, "namespace": namespace} for content in ("Bread needs flour.", LONG)]
    lines.append({"content": BEYOND, "namespace": f"{namespace} 2"})
    file.write_text("\n".join(map(json.dumps, lines)))
    code, counted = run("import", str(file))
    assert (code, counted["created"], counted["truncated"]) == (0, 3, 1)
    check_found(gateway, namespace)
    told = gateway.Remember(pb.RememberRequest(namespace=f"{namespace} 3", content=BEYOND), timeout=SECONDS)
    assert (told.windows, told.truncated) == (64, True)
    code, shown = run("remember", LONG, "--namespace", f"{namespace} 2")
    assert (code, shown["truncated"]) == (0, False)
    assert shown["windows"] > 20
