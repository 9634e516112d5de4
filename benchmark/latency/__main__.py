"""`python -m benchmark.latency [DATA]`: how long a recall takes at each door, and where the time goes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter, validators
from rich.console import Console
from rich.progress import track

from benchmark import report, stack
from benchmark.embedding import texts
from benchmark.embedding.texts import Texts
from benchmark.figures import Figure, as_json, print_table
from benchmark.latency import recalls, starting
from benchmark.latency.doors import Doors
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceStub
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceStub
from hippovault_chassis import channels
from hippovault_embedding.servicer import NAME as EMBEDDING
from hippovault_gateway.servicer import NAME as GATEWAY

app = App(name="python -m benchmark.latency", help=__doc__)

ExistingFile = Annotated[Path, Parameter(validator=validators.Path(exists=True, dir_okay=False))]
Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]


@app.default
def main(
    data: ExistingFile | None = None,
    *,
    memories: Positive = 10_000,
    queries: Positive = 400,
    starts: Positive = 20,
    reports: Path = report.REPORTS,
) -> None:
    """Prints measured figures and bounds, then the stages, and writes a report.

    Args:
        data: Gzip JSON lines of texts; made texts without.
        memories: In the store.
        queries: At each door, of each kind.
        starts: Of sessions, of each kind.
        reports: Where the report goes.
    """
    if data is None:
        print("no DATA: made texts")
    source = texts.load(data) if data else texts.made()
    with stack.running({"HIPPOVAULT_GATEWAY_HTTP": "127.0.0.1:0"}) as memory:
        _remember(memory.target, source, memories)
        figures, stages = asyncio.run(_recalls(memory, source, queries))
        figures += starting.measure(memory, source, starts)
    print_table(f"latency, {memories:,} memories", figures)
    print_table("where the time of a recall goes", stages)
    name = f"latency_{data.name.partition('.')[0] if data else 'synthetic'}"
    results = {"memories": memories, "figures": [*map(as_json, figures)], "stages": [*map(as_json, stages)]}
    print(f"report: {report.write(name, data, results, reports)}")


def _remember(target: str, source: Texts, memories: int) -> None:
    texts = track(source.documents(memories), "remember", console=Console(stderr=True))
    requests = (pb.StreamRememberRequest(request=pb.RememberRequest(content=text)) for text in texts)
    with channels.sync(target, GATEWAY, ()) as channel:
        for answer in MemoryServiceStub(channel).StreamRemember(requests):
            if answer.result.HasField("error"):
                sys.exit(f"a memory was refused: {answer.result.error.message}")


async def _recalls(memory: stack.Memory, source: Texts, queries: int) -> tuple[list[Figure], list[Figure]]:
    async with Doors(memory) as doors:
        with channels.sync(memory.service("embedding"), EMBEDDING, ()) as channel:
            figures = [
                *await recalls.repeated(doors.all, source, queries),
                *await recalls.fresh(doors.all, source, queries, EmbeddingServiceStub(channel)),
            ]
        return figures, recalls.stages(doors, source, queries)


if __name__ == "__main__":
    app()
