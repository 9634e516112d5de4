"""`python -m benchmark.embedding [DATA]`: measures the embedding service against plain ONNX Runtime."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter, validators
from rich.console import Console
from rich.progress import Progress

from benchmark import report, stack
from benchmark.embedding import calls, footprint, interactive, reference, soak, speed, texts
from benchmark.embedding.program import Program
from benchmark.embedding.sizes import Sizes
from benchmark.embedding.texts import Texts
from benchmark.figures import Figure, as_json, print_table
from hippovault_embedding.settings import default_workers

PARTS = 6
"""Of all that is measured, for the progress."""

app = App(name="python -m benchmark.embedding", help=__doc__)

ExistingFile = Annotated[Path, Parameter(validator=validators.Path(exists=True, dir_okay=False))]


@app.default
def main(
    data: ExistingFile | None = None,
    *,
    sizes: Annotated[Sizes, Parameter(name="*")] = Sizes(),  # noqa: B008  # Frozen, and cyclopts wants one.
    soak_seconds: Annotated[float, Parameter(name="--soak", validator=validators.Number(gte=0))] = 0.0,
    reports: Path = report.REPORTS,
) -> None:
    """Prints measured figure, baseline, ratio and bound, and writes a report.

    Args:
        data: Gzip JSON lines of texts; made texts without.
        sizes: How much is measured.
        soak_seconds: Instead of all that, puts a process under a mixed load for so long, and fails when its memory
            grows or an answer is not what it must be.
        reports: Where the report goes.
    """
    if data is None:
        print("no DATA: made texts")
    source = texts.load(data) if data else texts.made()
    name = f"{data.name.partition('.')[0] if data else 'synthetic'}{'_soak' if soak_seconds else ''}"
    answers: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="hv-") as directory:
        if soak_seconds:
            figures, answers = asyncio.run(soak.measure(Path(directory) / "home", source, soak_seconds))
        else:
            figures = asyncio.run(_measure(Path(directory), source, sizes))
    print_table(f"embedding, {name}", figures)
    results = {"figures": [*map(as_json, figures)], "answers": answers}
    print(f"report: {report.write(f'embedding_{name}', data, results, reports)}")
    if soak_seconds and any(figure.verdict == "missed" for figure in figures):
        sys.exit(1)


async def _measure(directory: Path, source: Texts, sizes: Sizes) -> list[Figure]:
    figures: list[Figure] = []
    # Drawn once a second, since that takes time from what is measured.
    with Progress(console=Console(stderr=True), refresh_per_second=1) as progress:
        task = progress.add_task("", total=PARTS)

        async def part(name: str, measuring: Awaitable[list[Figure]]) -> None:
            progress.update(task, description=name)
            figures.extend(await measuring)
            progress.advance(task)

        await part("memory", footprint.measure(directory / "footprint", source, sizes))
        with stack.embedding(directory / "speed") as process:
            async with calls.opened(process) as stub:
                await calls.throughput(stub, source.documents, sizes.documents)  # Loads the model.
                await part("reference", reference.measure(stub))
                cores = default_workers()
                programs = Program(threads=cores), Program(threads=1, workers=cores)
                await part("queries", speed.queries(stub, programs, source, sizes.queries))
                await part("texts", speed.bulk(stub, programs, source.documents, "text", sizes))
                await part("short texts", speed.bulk(stub, programs, source.short, "short text", sizes))
                await part("queries beside a load", interactive.measure(stub, source, sizes))
    return figures


if __name__ == "__main__":
    app()
