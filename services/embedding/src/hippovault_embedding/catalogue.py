"""The models that are served."""

from __future__ import annotations

from hippovault_chassis.errors import ServiceError
from hippovault_embedding import folder, remote_backend
from hippovault_embedding.batcher import Batcher, Limits
from hippovault_embedding.cache import EmbeddingCache
from hippovault_embedding.embedder import Embedder
from hippovault_embedding.model import default_model
from hippovault_embedding.onnx_backend import OnnxBackend, Processor
from hippovault_embedding.references import PackagedModel, Reference, parse_all
from hippovault_embedding.remote_backend import RemoteBackend
from hippovault_embedding.remote_model import RemoteModel
from hippovault_embedding.residency import Residency
from hippovault_embedding.settings import EmbeddingSettings

MEBIBYTE = 1024 * 1024


class Catalogue:
    """An embedder for each model, by name; they share processor and cache.

    Must be made where an event loop runs.

    Args:
        settings: Which models, and their limits.

    Raises:
        ServiceError: INVALID_ARGUMENT, the setting `model` is wrong.
    """

    def __init__(self, settings: EmbeddingSettings) -> None:
        references = parse_all(settings.model)
        self._settings = settings
        self._processor = Processor(settings.workers, settings.threads)
        self._cache = EmbeddingCache(settings.cache_mebibytes * MEBIBYTE)
        self._embedders = {reference.name: self._embedder(reference) for reference in references}

    @property
    def all(self) -> list[Embedder]:
        """Every model, the default one first."""
        return list(self._embedders.values())

    def get(self, name: str) -> Embedder:
        """Returns the model of a name, the default one for an empty name.

        Raises:
            ServiceError: INVALID_ARGUMENT, there is none.
        """
        if not name:
            return self.all[0]
        if name not in self._embedders:
            served = ", ".join(map(repr, self._embedders))
            raise ServiceError.invalid("model", f"must be empty or the name of a model that is served: {served}")
        return self._embedders[name]

    @property
    def healthy(self) -> bool:
        """Whether the default model can be used, as far as is known."""
        return not self.all[0].load_error

    async def close(self) -> None:
        """Lets go of all."""
        for embedder in self.all:
            await embedder.close()
        self._processor.close()

    def _embedder(self, reference: Reference) -> Embedder:
        backend = self._backend(reference)
        residency = Residency(reference.name, backend.load, backend.unload, self._settings.idle_seconds)
        return Embedder(reference.name, backend, residency, self._batcher(reference.name, backend), self._cache)

    def _backend(self, reference: Reference) -> OnnxBackend | RemoteBackend:
        if isinstance(reference, RemoteModel):
            return RemoteBackend(reference)
        if isinstance(reference, PackagedModel):
            return OnnxBackend(lambda: default_model(reference.name), self._processor)
        return OnnxBackend(lambda: folder.read(reference.name, reference.folder), self._processor)

    def _batcher(self, name: str, backend: OnnxBackend | RemoteBackend) -> Batcher:
        settings = self._settings
        if isinstance(backend, RemoteBackend):
            return Batcher(name, backend.run, backend.slots, remote_backend.limits(settings.max_queue_tokens))
        limits = Limits(
            settings.max_batch_tokens,
            settings.urgent_batch_tokens,
            settings.max_queue_tokens,
            batches=settings.workers,
        )
        return Batcher(name, backend.run, self._processor.slots, limits)
