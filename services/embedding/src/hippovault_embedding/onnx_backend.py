"""A model computed in this process, by ONNX Runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault_embedding import windows
from hippovault_embedding.backend import Options, Piece, Prepared, Row
from hippovault_embedding.model import Model, ModelFacts

if TYPE_CHECKING:  # Imported for good by the first load: a process that embeds nothing stays small.
    from hippovault_embedding.session import ModelSession
    from hippovault_embedding.tokenizer import ModelTokenizer

SHORT_CHARACTERS = 2_000
"""Of all texts of a call: so few are tokenised before another thread would have woken up."""

ResultT = TypeVar("ResultT")
Ts = TypeVarTuple("Ts")


class Processor:
    """The threads that models share. Inferences wait for nothing but each other.

    Args:
        workers: Inferences at a time.
        threads: That one inference uses.
    """

    def __init__(self, workers: int, threads: int) -> None:
        self.threads = threads
        self.slots = asyncio.Semaphore(workers)
        """Held by each batch that is computed: more would only take each other's cores."""
        self.inference = ThreadPoolExecutor(workers, "inference")
        self.tokenizing = ThreadPoolExecutor(1, "tokenizing")

    def close(self) -> None:
        """Ends the threads."""
        self.inference.shutdown(cancel_futures=True)
        self.tokenizing.shutdown(cancel_futures=True)


class OnnxBackend:
    """See `backend.Backend`.

    Args:
        read: Returns what is computed, or raises what `facts` does.
        processor: Where.
    """

    def __init__(self, read: Callable[[], Model], processor: Processor) -> None:
        self._read = read
        self._processor = processor
        self._tokenizer: ModelTokenizer | None = None
        self._session: ModelSession | None = None
        self._known: tuple[Model, ModelFacts] | None = None
        self._reading = Lock()
        self._asking = asyncio.Lock()
        self._was_loaded = False

    async def facts(self) -> ModelFacts:
        """Returns what callers are told of the model, whose files are read for that once.

        Raises:
            ModelError: A file is damaged.
            OSError: A file cannot be read.
        """
        known = self._known
        if known is None:
            async with self._asking:  # However many ask, one thread reads.
                known = await asyncio.to_thread(self._find_out)
        return known[1]

    def load(self) -> None:
        """Brings tokenizer and network into memory.

        Raises:
            ModelError: A file is damaged, or not what the model says.
            OSError: A file cannot be read.
        """
        model, _ = self._find_out()
        try:
            self._load(model)
        except Exception:
            # Those of which callers have vectors must stay what they were; others may have been mended meanwhile.
            self._known = self._known if self._was_loaded else None
            fresh, _ = self._find_out()
            if fresh.revision == model.revision:
                raise
            self._load(fresh)
        self._was_loaded = True

    def unload(self) -> None:
        """Lets go of both."""
        self._tokenizer = self._session = None

    async def prepare(self, texts: Sequence[str], options: Options) -> list[Prepared]:
        """Returns the tokens of each text."""
        if sum(map(len, texts)) <= SHORT_CHARACTERS:
            return self._tokenize(texts, options)
        return await _on(self._processor.tokenizing, self._tokenize, texts, options)

    async def run(self, pieces: Sequence[Piece]) -> list[Row]:
        """Returns the rows of the pieces."""
        loop, session = asyncio.get_running_loop(), _loaded(self._session)
        computing = loop.run_in_executor(self._processor.inference, session.run, pieces)
        try:
            return await asyncio.shield(computing)
        except asyncio.CancelledError:
            # A thread cannot be stopped, and the next batch must not begin beside it.
            await asyncio.gather(computing, return_exceptions=True)
            raise

    def _load(self, model: Model) -> None:
        from hippovault_embedding.session import ModelSession
        from hippovault_embedding.tokenizer import ModelTokenizer

        tokenizer = ModelTokenizer(model)
        self._tokenizer, self._session = tokenizer, ModelSession(model, self._processor.threads)

    def _find_out(self) -> tuple[Model, ModelFacts]:
        with self._reading:
            if self._known is None:
                model = self._read()
                self._known = model, _facts(model)
            return self._known

    def _tokenize(self, texts: Sequence[str], options: Options) -> list[Prepared]:
        tokenizer = _loaded(self._tokenizer)
        return [tokenizer.prepare(text, options) for text in texts]


def _facts(model: Model) -> ModelFacts:
    return ModelFacts(
        name=model.name,
        revision=model.revision,
        dimensions=model.dimensions,
        window=model.window,
        overlap=windows.overlap(model.window),
        windowed=True,
        # Their codes are made of whole bytes.
        token_encodings=() if model.dimensions % 8 else pb.TokenEncoding.values()[1:],
    )


async def _on(executor: ThreadPoolExecutor, function: Callable[[*Ts], ResultT], *arguments: *Ts) -> ResultT:
    return await asyncio.get_running_loop().run_in_executor(executor, function, *arguments)


def _loaded(part: ResultT | None) -> ResultT:
    if part is None:
        raise RuntimeError("the model is not loaded")
    return part
