"""A process under a mixed load for a long time: good calls, bad ones, callers who leave, and pauses that unload."""

from __future__ import annotations

import asyncio
import statistics
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmark import stack
from benchmark.embedding import calls
from benchmark.embedding.calls import Stub
from benchmark.embedding.footprint import MEGABYTE, unloaded
from benchmark.embedding.program import Floats, Program
from benchmark.embedding.texts import Texts
from benchmark.figures import TABLE_WIDTH, Bound, Figure
from benchmark.stack import Process
from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault_chassis.errors import ServiceError

FLAGS = ("--idle-seconds", "0.2", "--cache-mebibytes", "4")
"""Pauses are long enough to unload the model, and the cache is full before memory is compared."""
ROUND_SECONDS = 60
FEWEST_ROUNDS = 3
SAMPLE_SECONDS = 0.25
KNOWN = 16
"""Texts whose vectors are known beforehand."""
SAME = 0.999
"""Cosine of two vectors of one text."""
LEAVES_WITHIN = 0.3
"""Seconds after which a caller is gone at the latest."""
MAX_TEXTS = 256
MAX_WINDOWS = 64
MOST_TOLD = 10
SEED = 6
DEADLINE_TOO_SHORT = "DEADLINE_TOO_SHORT"
"""The refusal that may have no time to come again: the texts alone take longer than the deadline leaves."""

Code = grpc.StatusCode
FLAT = Bound(1.05)
NONE = Bound(0)


class Source:
    """What is sent, and what is known of the answers."""

    def __init__(self, texts: Texts) -> None:
        program = Program(threads=1)
        self.random = np.random.default_rng(SEED)
        self.texts = texts
        self.known: dict[str, Floats] = {text: program.embed(text) for text in texts.documents(KNOWN)}

    def query(self) -> pb.EmbedRequest:
        """One short text."""
        return self._with_known(self.texts.short(1), input_type=pb.INPUT_TYPE_QUERY)

    def document(self) -> pb.EmbedRequest:
        """One text, and one that is known."""
        return self._with_known(self.texts.documents(1))

    def bulk(self) -> pb.EmbedRequest:
        """As many as one request may have, or less."""
        return self._with_known(self.texts.documents(self._number(MAX_TEXTS - 1)))

    def long(self) -> pb.EmbedRequest:
        """A text of many windows."""
        return self._with_known([self.texts.long()])

    def tokens(self) -> pb.EmbedRequest:
        """A text whose tokens are told, too."""
        encodings = pb.TokenEncoding.values()[1:]
        return self._with_known(self.texts.documents(2), token_encoding=self.random.choice(encodings))

    def bad(self) -> pb.EmbedRequest:
        """One of the requests that no service can answer."""
        good = self.texts.documents(2)
        bad = [
            pb.EmbedRequest(),
            pb.EmbedRequest(texts=[*good, " \n\t"]),
            pb.EmbedRequest(texts=["before\0after", *good]),
            pb.EmbedRequest(texts=["long " * 20_000]),
            pb.EmbedRequest(texts=self.texts.documents(MAX_TEXTS + 1)),
            pb.EmbedRequest(texts=good, model="no such model"),
            pb.EmbedRequest(texts=good, max_windows=MAX_WINDOWS + 1),
            pb.EmbedRequest(texts=good, max_windows=-1),
        ]
        return bad[self._number(len(bad)) - 1]

    def problem(self, request: pb.EmbedRequest, response: pb.EmbedResponse) -> str:
        """Returns what is wrong with an answer; empty when nothing is."""
        rows = np.frombuffer(response.vectors, "<f4").reshape(-1, response.dimensions)
        windows = [info.windows for info in response.texts]
        if len(windows) != len(request.texts) or sum(windows) != len(rows):
            return "another number of vectors than texts have windows"
        if not np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-3):
            return "a vector whose norm is not 1"
        if request.token_encoding and not all(info.token_codes for info in response.texts):
            return "a text whose tokens are not told"
        first = np.cumsum([0, *windows[:-1]])
        of_known = [
            float(rows[place] @ self.known[text])
            for text, place in zip(request.texts, first, strict=True)
            if text in self.known
        ]
        return "the vector of another text" if min(of_known, default=1) < SAME else ""

    def _with_known(
        self,
        texts: list[str],
        input_type: pb.InputType.ValueType = pb.INPUT_TYPE_DOCUMENT,
        token_encoding: pb.TokenEncoding.ValueType = pb.TOKEN_ENCODING_UNSPECIFIED,
    ) -> pb.EmbedRequest:
        """Puts a known text among others; its number of windows, which changes nothing, keeps it out of the cache."""
        known = list(self.known)[self._number(KNOWN) - 1]
        texts.insert(self._number(len(texts)), known)
        windows = self._number(MAX_WINDOWS)
        return pb.EmbedRequest(texts=texts, input_type=input_type, token_encoding=token_encoding, max_windows=windows)

    def _number(self, most: int) -> int:
        return int(self.random.integers(1, most, endpoint=True))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Callers who are alike."""

    name: str
    request: Callable[[Source], pb.EmbedRequest]
    callers: int
    pause: float
    """Mean seconds between two calls of a caller."""
    hurried: bool = False
    """Whether they allow little time."""
    leaving: bool = False
    """Whether they go away before they have an answer."""
    right: frozenset[Code] = frozenset({Code.OK, Code.RESOURCE_EXHAUSTED})
    """What may become of a call."""


KINDS = (
    Kind(name="query", request=Source.query, callers=2, pause=0.3),
    Kind(name="document", request=Source.document, callers=4, pause=0.3),
    Kind(name="bulk", request=Source.bulk, callers=12, pause=0.1),
    Kind(name="long text", request=Source.long, callers=1, pause=0.5),
    Kind(name="token codes", request=Source.tokens, callers=1, pause=0.5),
    Kind(name="bad input", request=Source.bad, callers=1, pause=0.3, right=frozenset({Code.INVALID_ARGUMENT})),
    Kind(
        name="caller leaves",
        request=Source.document,
        callers=2,
        pause=0.3,
        leaving=True,
        right=frozenset({Code.OK, Code.RESOURCE_EXHAUSTED, Code.CANCELLED}),
    ),
    Kind(
        name="short deadline",
        request=Source.query,
        callers=2,
        pause=0.3,
        hurried=True,
        right=frozenset({Code.OK, Code.RESOURCE_EXHAUSTED, Code.DEADLINE_EXCEEDED}),
    ),
)


@dataclass
class Soak:
    """What has become of all calls so far."""

    stub: Stub
    source: Source
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind and status code."""
    wrong: list[str] = field(default_factory=list)

    async def round(self, seconds: float) -> None:
        """Has all callers call for so long; then they are gone, whatever they wait for."""
        callers = [asyncio.create_task(self._call(kind)) for kind in KINDS for _ in range(kind.callers)]
        done, pending = await asyncio.wait(callers, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for caller in pending:
            caller.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for caller in done:
            caller.result()

    async def _call(self, kind: Kind) -> None:
        while True:
            await asyncio.sleep(self.source.random.exponential(kind.pause))
            await self._call_once(kind)

    async def _call_once(self, kind: Kind) -> None:
        request, short = kind.request(self.source), self.source.random.uniform(0.001, LEAVES_WITHIN)
        call = self.stub.Embed(request, timeout=short if kind.hurried else calls.SECONDS)
        try:
            if kind.leaving:
                await asyncio.sleep(short)
                call.cancel()
            code = await call.code()
            problem = "" if code in kind.right else f"{code.name}: {await call.details()}"
            if code == Code.OK:
                problem = problem or self.source.problem(request, await call)
        finally:
            call.cancel()
        self.answers[kind.name, code.name] += 1
        if problem:
            self.wrong.append(f"{kind.name}: {problem}")
        if code == Code.RESOURCE_EXHAUSTED:
            await self._wait(kind, call)

    async def _wait(self, kind: Kind, call: grpc.aio.UnaryUnaryCall[pb.EmbedRequest, pb.EmbedResponse]) -> None:
        """Waits as long as a refusal says."""
        try:
            await call
        except grpc.aio.AioRpcError as error:
            refusal = ServiceError.from_rpc(error, "embedding")
            seconds = refusal.retry_seconds
            if not seconds and refusal.reason != DEADLINE_TOO_SHORT:
                self.wrong.append(f"{kind.name}: a refusal that does not say when to come again")
            await asyncio.sleep(seconds)


async def measure(home: Path, texts: Texts, seconds: float) -> tuple[list[Figure], dict[str, int]]:
    """Puts a process under load, round by round, with a pause after each.

    Args:
        home: For the process.
        texts: What is sent.
        seconds: Of all rounds together.

    Returns:
        The figures, and the number of answers by kind and status code.
    """
    source = Source(texts)
    rounds = max(FEWEST_ROUNDS, round(seconds / ROUND_SECONDS))
    busy: list[float] = []
    idle: list[float] = []
    with stack.embedding(home, *FLAGS) as process:
        async with calls.opened(process) as stub:
            soak = Soak(stub, source)
            for _ in track(range(rounds), "rounds", console=Console(stderr=True), refresh_per_second=1):
                busy.append(await _memory_during(process, soak.round(seconds / rounds)))
                await unloaded(stub)
                idle.append(process.resident_bytes())
            peak = process.peak_bytes()
    _print(soak)
    queries = Counter({code: number for (kind, code), number in soak.answers.items() if kind == "query"})
    refused = queries.total() - queries[Code.OK.name]
    megabytes_busy, megabytes_idle = ([size / MEGABYTE for size in sizes] for sizes in (busy, idle))
    figures = [
        *(Figure(f"resident memory in round {number}", size, "MB") for number, size in enumerate(megabytes_busy, 1)),
        Figure("resident memory, last round; second", megabytes_busy[-1], "MB", megabytes_busy[1], FLAT),
        Figure("resident memory, unloaded, last round; second", megabytes_idle[-1], "MB", megabytes_idle[1], FLAT),
        Figure("resident memory, peak", peak / MEGABYTE, "MB"),
        Figure("calls", soak.answers.total()),
        Figure("answers that are not what they must be", len(soak.wrong), bound=NONE),
        Figure("queries that were not answered", refused, bound=NONE),
    ]
    return figures, {f"{kind}: {code}": number for (kind, code), number in sorted(soak.answers.items())}


async def _memory_during(process: Process, load: Coroutine[None, None, None]) -> float:
    """Returns the median of the resident bytes while a load lasts."""
    task, sizes = asyncio.create_task(load), [process.resident_bytes()]
    while not (await asyncio.wait([task], timeout=SAMPLE_SECONDS))[0]:
        sizes.append(process.resident_bytes())
    await task
    return statistics.median(sizes)


def _print(soak: Soak) -> None:
    table = Table("calls", title="answers by status code")
    codes = sorted({code for _, code in soak.answers})
    for code in codes:
        table.add_column(code, justify="right")
    for kind in KINDS:
        table.add_row(kind.name, *(f"{soak.answers[kind.name, code]:,}" for code in codes))
    console = Console(width=TABLE_WIDTH)
    console.print(table)
    for problem in soak.wrong[:MOST_TOLD]:
        console.print(f"wrong: {problem}", markup=False)
