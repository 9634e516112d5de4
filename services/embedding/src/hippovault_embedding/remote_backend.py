"""A model computed by another server, over HTTP."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hippovault_embedding import windows
from hippovault_embedding.backend import Options, Piece, Prepared, Row
from hippovault_embedding.batcher import Limits
from hippovault_embedding.model import ModelFacts
from hippovault_embedding.remote_model import RemoteModel

if TYPE_CHECKING:  # Imported for good by the first load: a process that embeds nothing stays small.
    from hippovault_embedding.remote_answer import Matrix
    from hippovault_embedding.remote_server import RemoteServer

REQUESTS = 8
"""At a time."""
BATCH_TEXTS = 32
"""Of one request: as many as text-embeddings-inference takes when nobody says otherwise."""
BYTES_A_TOKEN = 3
"""UTF-8, roughly: English has more, other scripts and code have fewer."""


def limits(queue_tokens: int) -> Limits:
    """Returns what batches and queue may have, in estimated tokens."""
    return Limits(
        batch_tokens=8192,
        urgent_batch_tokens=2048,
        queue_tokens=queue_tokens,
        batch_pieces=BATCH_TEXTS,
        batches=REQUESTS,
    )


class RemoteBackend:
    """See `backend.Backend`.

    Loading makes no request, so it costs nothing and a server that is down is no model that cannot be loaded: each call
    finds out for itself. Hence the dimensions are unknown until the first answer, unless the reference names them.

    Must be made where an event loop runs.

    Args:
        model: What is computed, and where.
    """

    def __init__(self, model: RemoteModel) -> None:
        self._model = model
        self._loop = asyncio.get_running_loop()
        self._server: RemoteServer | None = None
        self.slots = asyncio.Semaphore(REQUESTS)
        """Held by each request that is under way."""
        windowed = model.window_characters > 0
        self._facts = ModelFacts(model.name, model.revision, model.dimensions, windowed=windowed, server=model.server)

    async def facts(self) -> ModelFacts:
        """Returns what callers are told of the model."""
        return self._facts

    def load(self) -> None:
        """Makes the client ready.

        Raises:
            ModelError: The environment variable that must have the key does not.
        """
        from hippovault_embedding.remote_server import RemoteServer

        self._server = RemoteServer(self._model, REQUESTS, self._report)

    def unload(self) -> None:
        """Closes the connections."""
        server, self._server = self._server, None
        if server:
            asyncio.run_coroutine_threadsafe(server.close(), self._loop).result()

    async def prepare(self, texts: Sequence[str], options: Options) -> list[Prepared]:
        """Returns each text as one piece, or in windows of characters: only the server counts tokens."""
        prefix = self._model.query_prefix if options.query else self._model.document_prefix
        capacity = self._model.window_characters - len(prefix) if self._model.window_characters else sys.maxsize
        return [_prepared(prefix, text, capacity, options.max_windows) for text in texts]

    async def run(self, pieces: Sequence[Piece]) -> list[Row]:
        """Returns the rows of the pieces."""
        return await self._rows([piece.text for piece in pieces])

    async def _rows(self, texts: Sequence[str]) -> list[Row]:
        from hippovault_embedding.remote_server import RefusedError

        try:
            vectors = await self._vectors(texts)
        except RefusedError as error:
            if len(texts) == 1:
                return [Row(b"", refused=str(error))]
            # They may be many callers' texts: only the one that is too long is to blame.
            half = len(texts) // 2
            return [*await self._rows(texts[:half]), *await self._rows(texts[half:])]
        return [Row(vector.tobytes()) for vector in vectors]

    async def _vectors(self, texts: Sequence[str]) -> Matrix:
        if self._server is None:
            raise RuntimeError("the model is not loaded")
        vectors = await self._server.embed(texts, self._facts.dimensions)
        known, told = self._facts.dimensions, vectors.shape[1]
        if known and told != known:  # Stores and caches count on one dimension for a revision.
            problem = f"answers vectors of {told} dimensions instead of {known}; if that is meant, restart this service"
            raise self._server.unavailable(problem)
        self._facts = replace(self._facts, dimensions=told)
        return vectors

    def _report(self, error: str) -> None:
        self._facts = replace(self._facts, server_error=error)


def _prepared(prefix: str, text: str, capacity: int, max_windows: int) -> Prepared:
    kept = text[: windows.reach(capacity, max_windows)]
    pieces = [_piece(prefix + kept[start:end]) for start, end in windows.spans(len(kept), capacity)]
    return Prepared(pieces, token_count=0, truncated=len(kept) < len(text))


def _piece(text: str) -> Piece:
    return Piece((), 1 + len(text.encode()) // BYTES_A_TOKEN, text)
