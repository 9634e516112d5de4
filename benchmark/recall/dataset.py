"""Datasets of memories and questions in the benchmark's neutral form.

Gzip JSON: `{"memories": [{"key", "text", "scope"?, "timestamp"?, "speaker"?, "tags"?, "hints"?}],
"queries": [{"q", "relevant": [key, …], "scope"?, "match"?}]}`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_chassis import memory_rules
from hippovault_gateway.documents import timestamp


@dataclass(frozen=True)
class Question:
    """A query and the keys of the memories that answer it."""

    text: str
    relevant: frozenset[str]
    namespace: str
    any_is_enough: bool
    """Whether one of the relevant memories is as good as all."""


@dataclass(frozen=True)
class Dataset:
    """What goes in and what is asked."""

    memories: list[pb.RememberRequest]
    questions: list[Question]


def load(path: Path, *, hints: bool) -> Dataset:
    """Reads a dataset.

    Args:
        path: The gzip JSON file.
        hints: Whether memories keep their hints.
    """
    with gzip.open(path, "rt", encoding="utf-8") as file:
        raw = json.load(file)
    memories = [_memory(item, hints=hints) for item in raw["memories"]]
    return Dataset(memories, list(_questions(raw["queries"])))


def _memory(item: dict[str, Any], *, hints: bool) -> pb.RememberRequest:
    speaker = item.get("speaker")
    return pb.RememberRequest(
        namespace=item.get("scope", ""),
        # Who said it is part of what was said: questions ask by name.
        content=f"{speaker}: {item['text']}" if speaker else item["text"],
        key=item["key"],
        tags=item.get("tags", ()),
        hints=_hints(item) if hints else (),
        created_at=timestamp("timestamp", item["timestamp"]) if item.get("timestamp") else None,
    )


def _hints(item: dict[str, Any]) -> list[str]:
    """Returns the first that a memory may have."""
    fitting = [hint for hint in item.get("hints", ()) if len(hint.encode()) <= memory_rules.MAX_HINT_BYTES]
    return fitting[: memory_rules.MAX_HINTS]


def _questions(queries: list[dict[str, Any]]) -> Iterator[Question]:
    for item in queries:
        yield Question(
            item["q"], frozenset(item["relevant"]), item.get("scope", ""), any_is_enough=item.get("match") == "any"
        )
