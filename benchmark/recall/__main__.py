"""`python -m benchmark.recall DATA…`: imports each dataset and asks its questions in the three modes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter, validators
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmark import figures as figure_table
from benchmark import report, stack
from benchmark.figures import Bound, Figure
from benchmark.recall import metrics
from benchmark.recall.dataset import Dataset, Question, load
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1 import memory_service_pb2_grpc
from hippovault_chassis import channels
from hippovault_gateway.documents import mode_name
from hippovault_gateway.servicer import NAME

if TYPE_CHECKING:
    from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceAsyncStub

BATCH = 64
CALLERS = 4
SECONDS = 300
TABLE_WIDTH = 100
"""Of the printed table, whatever the terminal: the figures must not wrap."""
MODES = (pb.RECALL_MODE_DENSE, pb.RECALL_MODE_KEYWORD, pb.RECALL_MODE_HYBRID)

TARGETS = {
    "locomo_dev": 0.54,
    "tldr_en_dev": 0.43,
    "banking77_dev": 0.76,
    "stackfaq_dev": 0.925,
    "tldr_en_dev_hints": 0.64,
    "banking77_dev_hints": 0.94,
    "stackfaq_dev_hints": 0.995,
}
"""nDCG@10 that hybrid recall is to reach without the boost. Those with hints assume that all hints of the data set are
stored, which are up to 20 a memory; a memory may have three."""
MOST_COST = 0.005
"""nDCG@10 that the boost may cost where surprise says nothing."""

app = App(name="python -m benchmark.recall", help=__doc__)
console = Console(stderr=True)

ExistingFile = Annotated[Path, Parameter(validator=validators.Path(exists=True, dir_okay=False))]
Row = tuple[str, bool, list[metrics.Scores]]


@app.default
def main(datasets: list[ExistingFile], *, hints: bool = False) -> None:
    """Measures recall@1/5/10, MRR@10 and nDCG@10.

    Args:
        datasets: Gzip JSON files of memories and questions.
        hints: Whether memories are stored with their hints.
    """
    if not datasets:
        sys.exit("DATA is missing: make bench-recall DATA=path/to/dataset.json.gz")
    for path in datasets:
        dataset = load(path, hints=hints)
        with stack.memory({"HIPPOVAULT_HINTS_ENABLED": "1"}) as target:
            rows = asyncio.run(_measure(target, dataset))
        name = path.name.removesuffix(".json.gz") + ("_hints" if hints else "")
        print_table(name, dataset, rows)
        figures = compared(name, rows)
        figure_table.print_table(name, figures)
        written = report.write(
            f"recall_{name}", path, [*map(_row_json, rows), *(figure_table.as_json(figure) for figure in figures)]
        )
        print(f"report: {written.relative_to(Path.cwd()) if written.is_relative_to(Path.cwd()) else written}")


async def _measure(target: str, dataset: Dataset) -> list[Row]:
    async with channels.aio(target, NAME, ("Remember", "BatchRemember", "Recall")) as channel:
        gateway = memory_service_pb2_grpc.MemoryServiceStub(channel)
        await _remember(gateway, dataset.memories)
        return [
            (mode_name(mode), boost, await _ask_all(gateway, dataset.questions, mode, boost=boost))
            for boost in (True, False)
            for mode in MODES
        ]


async def _remember(gateway: MemoryServiceAsyncStub, memories: Sequence[pb.RememberRequest]) -> None:
    starts = range(0, len(memories), BATCH)
    for start in track(starts, "remember", console=console):
        batch = pb.BatchRememberRequest(requests=memories[start : start + BATCH])
        response = await gateway.BatchRemember(batch, timeout=SECONDS)
        failed = [result.error.message for result in response.results if result.HasField("error")]
        if failed:
            sys.exit(f"{len(failed)} memories were refused, the first: {failed[0]}")


async def _ask_all(
    gateway: MemoryServiceAsyncStub, questions: Sequence[Question], mode: pb.RecallMode.ValueType, *, boost: bool
) -> list[metrics.Scores]:
    async def ask(question: Question) -> metrics.Scores:
        request = pb.RecallRequest(
            namespace=question.namespace,
            query=question.text,
            limit=metrics.DEPTH,
            mode=mode,
            no_surprise_boost=not boost,
        )
        response = await gateway.Recall(request, timeout=SECONDS)
        found = [hit.memory.key for hit in response.hits]
        return metrics.score(found, question.relevant, any_is_enough=question.any_is_enough)

    scores: list[metrics.Scores] = []
    starts = range(0, len(questions), CALLERS)
    for start in track(starts, f"{mode_name(mode)}, {'boosted' if boost else 'unboosted'}", console=console):
        scores += await asyncio.gather(*(ask(question) for question in questions[start : start + CALLERS]))
    return scores


def print_table(name: str, dataset: Dataset, rows: Sequence[Row]) -> None:
    """Prints one line a mode, boosted and unboosted."""
    table = Table(title=f"{name}: {len(dataset.memories)} memories, {len(dataset.questions)} questions")
    table.add_column("surprise")
    table.add_column("mode")
    for column in (*(f"recall@{cut}" for cut in metrics.CUTS), "MRR@10", "nDCG@10"):
        table.add_column(column, justify="right", no_wrap=True)
    for mode, boost, scores in rows:
        mean = metrics.mean(scores)
        numbers = [f"{value:.3f}" for value in (*mean.recall, mean.mrr)]
        numbers.append(f"{mean.ndcg:.3f} ± {metrics.half_width(scores):.3f}")
        table.add_row("boosted" if boost else "off", mode, *numbers)
    Console(width=TABLE_WIDTH).print(table)


def compared(name: str, rows: Sequence[Row]) -> list[Figure]:
    """Returns hybrid recall against its target and against the better arm, and what the boost costs each mode."""
    ndcg = {(mode, boost): metrics.mean(scores).ndcg for mode, boost, scores in rows}
    dense, keyword, hybrid = map(mode_name, MODES)
    target = TARGETS.get(name)
    return [
        Figure("hybrid, nDCG@10", ndcg[hybrid, False], bound=Bound(target, at_least=True) if target else None),
        Figure(
            "hybrid, nDCG@10; the better arm",
            ndcg[hybrid, False],
            baseline=max(ndcg[dense, False], ndcg[keyword, False]),
            bound=Bound(1, at_least=True),
        ),
        *(
            Figure(
                f"{mode}, nDCG@10 that the boost costs", ndcg[mode, False] - ndcg[mode, True], bound=Bound(MOST_COST)
            )
            for mode in map(mode_name, MODES)
        ),
    ]


def _row_json(row: Row) -> dict[str, Any]:
    mode, boost, scores = row
    return {
        "mode": mode,
        "surprise_boost": boost,
        "questions": len(scores),
        "ndcg_half_width": metrics.half_width(scores),
        **asdict(metrics.mean(scores)),
    }


if __name__ == "__main__":
    app()
