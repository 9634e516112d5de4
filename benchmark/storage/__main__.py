"""`python -m benchmark.storage [DATA]`: measures the storage service against plain apsw on the same machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter, validators

from benchmark import report
from benchmark.figures import as_json, print_table
from benchmark.storage import corpus, encryption, scale, searching, writing

app = App(name="python -m benchmark.storage", help=__doc__)

ExistingFile = Annotated[Path, Parameter(validator=validators.Path(exists=True, dir_okay=False))]
Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]


@app.default
def main(
    data: ExistingFile | None = None,
    *,
    rows: Positive = 100_000,
    queries: Positive = 100,
    writes: Positive = 1_000,
    varied: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    reports: Path = report.REPORTS,
) -> None:
    """Prints measured figure, baseline, ratio and bound, and writes a report.

    Args:
        data: Gzip JSON lines of texts; synthetic texts and vectors without.
        rows: Memories in the store that is searched.
        queries: Searches of each kind; their texts and vectors are not in the store.
        writes: Writes of each kind.
        varied: Memories in a further store, made by varying the rows; none by default.
        reports: Where the report and the data's vectors go.
    """
    if data is None:
        print("no DATA: synthetic texts and vectors")
    source = corpus.load(data, reports) if data else corpus.made(queries + max(rows, writing.PUTS_A_WRITE * writes))
    asked, written, stored = source[:queries], source[queries:], source[queries : queries + rows]
    with tempfile.TemporaryDirectory(prefix="hv-") as directory:
        figures = [
            *writing.measure(Path(directory), written, writes),
            *encryption.measure(Path(directory), written, asked, writes),
            *searching.measure(Path(directory) / "searched.db", stored, asked),
        ]
    print_table(f"storage, {len(stored):,} memories", figures)
    at_scale = []
    if varied:
        with tempfile.TemporaryDirectory(prefix="hv-") as directory:
            at_scale = scale.measure(Path(directory) / "home", stored, asked, varied)
        print_table(f"storage, {varied:,} memories: varied texts, perturbed vectors", at_scale)
    name = data.name.partition(".")[0] if data else "synthetic"
    results = {
        "memories": len(stored),
        "figures": [*map(as_json, figures)],
        "varied_memories": varied,
        "varied_figures": [*map(as_json, at_scale)],
    }
    print(f"report: {report.write(f'storage_{name}', data, results, reports)}")


if __name__ == "__main__":
    app()
