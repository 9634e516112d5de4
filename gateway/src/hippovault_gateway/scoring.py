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
    """

    def __init__(self, services: Services, weights: surprise.Weights) -> None:
        self._services = services
        self._weights = weights

    async def score(self, memory: memory_pb2.Memory, embedded: Embedded) -> memory_pb2.Surprise:
        """Returns the surprise of the memory.

        Args:
            memory: As it will be stored.
            embedded: Its content. The vector of its beginning counts: a surprise, once stored, means the same for long
                and short memories.
        """
        compare = storage_pb2.CompareToNewestRequest(
            namespace=memory.namespace,
            vector=embedded.first,
            newest=surprise.HISTORY,
            model_revision=embedded.model_revision,
        )
        history = await call(self._services.storage.CompareToNewest, compare, STORAGE)
        return surprise.of(memory, history.cosine_similarities, self._weights)
