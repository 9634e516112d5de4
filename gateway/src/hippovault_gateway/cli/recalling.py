"""`hippovault recall`: what answers a question, and on demand why each hit stands where it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from cyclopts import Parameter

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1.memory_pb2 import ArmScore
from hippovault_gateway.cli.asking import ask
from hippovault_gateway.cli.inputs import EVERYTHING, Narrowing
from hippovault_gateway.cli.listing import show_memories
from hippovault_gateway.cli.options import CLIENT_DEFAULTS, ClientOptions
from hippovault_gateway.cli.output import counted, show_json, show_line, show_table, warn
from hippovault_gateway.documents import MODES
from hippovault_gateway.entity_arguments import SearchArguments
from hippovault_gateway.views import MATCHED_BY, RecallView

Mode = Annotated[str, Parameter(completer=lambda _context: list(MODES))]
ArmName = Literal["dense", "keyword", "late_interaction"]
ARMS: tuple[ArmName, ...] = ("dense", "keyword", "late_interaction")
REASONS: dict[str, Callable[[pb.Hit], str]] = {
    "id": lambda hit: str(hit.memory.id),
    "relevance": lambda hit: f"{hit.relevance:.3f}",
    "arm, rank: raw score": lambda hit: "\n".join(_arm(hit, name) for name in ARMS if hit.HasField(name)),
    "surprise": lambda hit: f"{hit.surprise:.3f}\nsalience {hit.salience:.3f}\ndecay {hit.decay:.3f}",
    "matched by": lambda hit: "\n".join(MATCHED_BY[found] for found in hit.matched_by),
}
"""Columns of the table of reasons, few enough for a narrow terminal."""


def recall(
    query: str,
    /,
    *,
    limit: int | None = None,
    mode: Mode = "hybrid",
    no_surprise_boost: bool = False,
    oversample_factor: int | None = None,
    narrowing: Narrowing = EVERYTHING,
    full: bool = False,
    explain: bool = False,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Finds the memories that answer a question, best first.

    Args:
        query: What to look for, in natural language.
        limit: Hits wanted, 1 to 100 (default: 10).
        mode: By meaning (dense, semantic), by words (keyword) or both (hybrid, the default).
        no_surprise_boost: Rank by relevance alone.
        oversample_factor: Candidates fetched for each wanted hit, 1 to 100.
        narrowing: Which memories are found at all.
        full: Show contents whole; otherwise long ones are cut in the table, never in JSON.
        explain: Show also why each hit stands where it does, and where the time went; JSON always has the reasons.
        options: Which memory, and how to answer.
    """
    values = {
        "query": query,
        "limit": limit,
        "mode": mode,
        "no_surprise_boost": no_surprise_boost,
        "oversample_factor": oversample_factor,
        **narrowing.values(),
    }
    response = ask(lambda stub: stub.Recall, SearchArguments, values, options)
    view = RecallView.of(response)
    if options.json:
        show_json(view.model_dump())
        return
    if view.degraded:
        warn(view.degraded)
    if view.omitted_hits:
        warn(f"{counted(view.omitted_hits, 'hit')} left off, since the answer would be too large")
    extra = {
        "score": [f"{hit.score:.3f}" for hit in view.hits],
        "hint": ["yes" if "hint" in hit.matched_by else "" for hit in view.hits],
    }
    show_memories(view.hits, narrowing.namespace, extra, full=full)
    if explain:
        _explain(response, view)


def _explain(response: pb.RecallResponse, view: RecallView) -> None:
    if response.hits:
        show_table(list(REASONS), ([reason(hit) for reason in REASONS.values()] for hit in response.hits))
    show_line(f"mode: {view.mode}" + (f", degraded: {view.degraded}" if view.degraded else ""))
    if view.times_ms:
        times = ", ".join(f"{name.replace('_', ' ')} {time:.1f} ms" for name, time in view.times_ms.items())
        show_line(f"times: {times}")


def _arm(hit: pb.Hit, name: ArmName) -> str:
    """Returns an arm's raw score, and its rank where the arm returned the hit."""
    arm: ArmScore = getattr(hit, name)
    return f"{name.replace('_', ' ')} {arm.rank or '-'}: {arm.score:.3f}"
