"""`python -m benchmark.surprise`: stores what was decided among much talk, in several orders, and asks for it."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import App, Parameter, validators
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmark import figures, report, stack
from benchmark.figures import Bound, Figure
from benchmark.surprise import prediction
from benchmark.surprise.evaluations import Evaluation, Item, evaluations, orders
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1 import memory_service_pb2_grpc
from hippovault_chassis import channels
from hippovault_gateway import ranking, surprise
from hippovault_gateway.documents import mode_name
from hippovault_gateway.servicer import NAME
from hippovault_gateway.surprise import Version, Weights

if TYPE_CHECKING:
    from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceAsyncStub

K = 5
BATCH = 64
CALLERS = 4
SECONDS = 300
SECONDS_A_DAY = 86_400
DECAY_FLOOR = 0.5
TABLE_WIDTH = 110
"""Of the printed table, whatever the terminal: the figures must not wrap."""
MODES = (pb.RECALL_MODE_DENSE, pb.RECALL_MODE_HYBRID)
VERSIONS: tuple[Version, ...] = (1, 2)

app = App(name="python -m benchmark.surprise", help=__doc__)
console = Console(stderr=True)

Stored = dict[str, list[tuple[str, list[Item]]]]
"""By order, the namespaces that were filled in it and what went in."""


@dataclass(frozen=True)
class Row:
    """One evaluation in one mode, its memories scored and ranked by one version."""

    version: Version
    mode: str
    evaluation: Evaluation
    base: float
    """Without the boost, in the published order."""
    boosted: dict[str, float]
    """With it, by order."""


@app.default
def main(*, seeds: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 5) -> None:
    """Measures P@1 and R@5 of what was decided, without the boost and with it, by each version of the rule.

    Args:
        seeds: How many times memories are shuffled; the mean is told.
    """
    rows = []
    for version in VERSIONS:
        with stack.memory({"HIPPOVAULT_GATEWAY_SURPRISE_VERSION": str(version)}) as target:
            rows += asyncio.run(_measure(target, version, seeds))
    for version in VERSIONS:
        for mode in map(mode_name, MODES):
            print_table(version, mode, [row for row in rows if (row.version, row.mode) == (version, mode)])
    compared = [figure for row in rows for figure in _compared(row)]
    figures.print_table("version 2, dense: the worst order, and the published figure as its bound", compared)
    written = report.write("surprise", None, [*map(_row_json, rows), *map(figures.as_json, compared)])
    print(f"report: {written.relative_to(Path.cwd()) if written.is_relative_to(Path.cwd()) else written}")


async def _measure(target: str, version: Version, seeds: int) -> list[Row]:
    async with channels.aio(target, NAME, ("BatchRemember", "Recall")) as channel:
        gateway = memory_service_pb2_grpc.MemoryServiceStub(channel)
        rows = []
        for evaluation in track(list(evaluations()), f"version {version}", console=console):
            stored = await _stored(gateway, evaluation, seeds)
            rows += [await Asker(gateway, version, mode, evaluation).row(stored) for mode in MODES]
        return rows


async def _stored(gateway: MemoryServiceAsyncStub, evaluation: Evaluation, seeds: int) -> Stored:
    """Stores the memories in each order, in a namespace each, which shares nothing with others."""
    stored: Stored = {}
    for order, drawn in orders(evaluation.items, seeds).items():
        for place, items in enumerate(drawn):
            namespace = f"{evaluation.name} {order} {place}"
            await _remember(gateway, namespace, items)
            stored.setdefault(order, []).append((namespace, items))
    return stored


async def _remember(gateway: MemoryServiceAsyncStub, namespace: str, items: Sequence[Item]) -> None:
    now = int(time.time())
    requests = [
        pb.RememberRequest(
            namespace=namespace,
            content=item.text,
            tags=item.tags,
            importance=item.importance,
            created_at=Timestamp(seconds=now - item.age_days * SECONDS_A_DAY) if item.age_days else None,
        )
        for item in items
    ]
    for start in range(0, len(requests), BATCH):
        batch = pb.BatchRememberRequest(requests=requests[start : start + BATCH])
        response = await gateway.BatchRemember(batch, timeout=SECONDS)
        failed = [result.error.message for result in response.results if result.HasField("error")]
        if failed:
            raise SystemExit(f"{len(failed)} memories were refused, the first: {failed[0]}")


@dataclass(frozen=True)
class Asker:
    """Asks the questions of an evaluation in one mode, by one version of the rule."""

    gateway: MemoryServiceAsyncStub
    version: Version
    mode: pb.RecallMode.ValueType
    evaluation: Evaluation

    async def row(self, stored: Stored) -> Row:
        """Asks in every namespace."""
        first, items = next(iter(stored.values()))[0]
        base = await self._mean_score(first, items, boost=False)
        boosted = {
            order: statistics.fmean([await self._mean_score(*namespace, boost=True) for namespace in drawn])
            for order, drawn in stored.items()
        }
        return Row(self.version, mode_name(self.mode), self.evaluation, base, boosted)

    async def _mean_score(self, namespace: str, items: list[Item], *, boost: bool) -> float:
        contents = [item.text for item in items]
        losses = dict(zip(contents, prediction.losses(contents), strict=True)) if self.evaluation.predicts else None
        scores: list[float] = []
        for start in range(0, len(self.evaluation.questions), CALLERS):
            asked = self.evaluation.questions[start : start + CALLERS]
            found = await asyncio.gather(
                *(self._found(namespace, question, losses, boost=boost) for question, _ in asked)
            )
            answers = [{item.text for item in items if item.answers == topic} for _, topic in asked]
            scores += map(_score, found, answers)
        return statistics.fmean(scores)

    async def _found(self, namespace: str, question: str, losses: dict[str, float] | None, *, boost: bool) -> list[str]:
        reranks, factor = boost and losses is not None, self.evaluation.oversample_factor
        request = pb.RecallRequest(
            namespace=namespace,
            query=question,
            mode=self.mode,
            limit=K * factor if reranks else K,
            oversample_factor=factor,
            no_surprise_boost=reranks or not boost,
        )
        hits: Sequence[pb.Hit] = (await self.gateway.Recall(request, timeout=SECONDS)).hits
        if reranks and losses is not None:
            hits = reranked(hits, losses, self.version)[:K]
        return [hit.memory.content for hit in hits]


def _score(found: list[str], answers: set[str]) -> float:
    """Returns whether the one answer comes first, or the part of several that is among the best."""
    if len(answers) == 1:
        return float(found[:1] == list(answers))
    return len(answers.intersection(found)) / len(answers)


def reranked(hits: Sequence[pb.Hit], losses: dict[str, float], version: Version) -> list[pb.Hit]:
    """Returns hits in the order that they would have with the prediction losses of their contents in their surprise."""
    surprises = np.array([_with_prediction(hit, losses[hit.memory.content]) for hit in hits])
    importances = np.array([hit.memory.importance for hit in hits])
    cosines = np.array([hit.cosine_similarity for hit in hits])
    if version != 1:
        surprises *= ranking.salience(surprises, importances, cosines)
    scores = [
        ranking.score(hit.relevance, counts, hit.decay, DECAY_FLOOR)
        for hit, counts in zip(hits, surprises.tolist(), strict=True)
    ]
    return [hits[place] for place in np.argsort(-np.array(scores), kind="stable").tolist()]


def _with_prediction(hit: pb.Hit, loss: float) -> float:
    parts = hit.memory.surprise.components
    return surprise.score(parts.embedding_outlier, parts.engagement, parts.explicit, loss, Weights())


def print_table(version: Version, mode: str, rows: Sequence[Row]) -> None:
    """Prints one line an evaluation."""
    table = Table("evaluation", title=f"surprise version {version}, {mode}")
    for column in ("published", "no boost", *rows[0].boosted):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        published = "" if row.evaluation.published is None else f"{row.evaluation.published:.3f}"
        numbers = (f"{number:.3f}" for number in (row.base, *row.boosted.values()))
        table.add_row(row.evaluation.name, published, *numbers)
    Console(width=TABLE_WIDTH).print(table)


def _compared(row: Row) -> list[Figure]:
    published = row.evaluation.published
    if published is None or (row.version, row.mode) != (VERSIONS[-1], mode_name(MODES[0])):
        return []
    return [Figure(row.evaluation.name, min(row.boosted.values()), bound=Bound(published, at_least=True))]


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "version": row.version,
        "mode": row.mode,
        "evaluation": row.evaluation.name,
        "published": row.evaluation.published,
        "no_boost": row.base,
        "boosted": row.boosted,
    }


if __name__ == "__main__":
    app()
