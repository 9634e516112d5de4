"""The surprise of a memory that is about to be written, against what its namespace holds."""

from __future__ import annotations

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2
from hippovault_gateway import surprise
from hippovault_gateway.clients import STORAGE, Services, call
from hippovault_gateway.embedding import Embedded


class Scorer:
    """Scores memories.

    Args:
        services: The services behind the gateway.
        weights: Of the surprise score.
        version: Of its rule.
    """

    def __init__(self, services: Services, weights: surprise.Weights, version: surprise.Version) -> None:
        self._services = services
        self._weights = weights
        self._version = version

    async def score(self, memory: memory_pb2.Memory, embedded: Embedded) -> memory_pb2.Surprise:
        """Returns the surprise of the memory.

        Args:
            memory: As it will be stored.
            embedded: Its content. The vector of its beginning counts: a surprise, once stored, means the same for long
                and short memories.
        """
        compare = storage_pb2.CompareToNewestRequest(
            namespace=memory.namespace, vector=embedded.first, model_revision=embedded.model_revision
        )
        if self._version == 1:
            compare.newest = surprise.HISTORY
        else:
            compare.nearest = surprise.NEIGHBOURS
        held = await call(self._services.storage.CompareToNewest, compare, STORAGE)
        if self._version == 1:
            outlier = surprise.embedding_outlier(held.cosine_similarities)
        else:
            outlier = surprise.neighbour_outlier(held.nearest_cosine_similarities)
        return surprise.of(memory, outlier, self._weights, self._version)
