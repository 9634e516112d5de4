"""The embedding process: `python -m hippovault_embedding`."""

from __future__ import annotations

import asyncio

from hippovault.embedding.v1.embedding_pb2_grpc import add_EmbeddingServiceServicer_to_server
from hippovault_chassis import process, serving
from hippovault_embedding import memory
from hippovault_embedding.catalogue import Catalogue
from hippovault_embedding.servicer import NAME, EmbeddingServicer
from hippovault_embedding.settings import EmbeddingSettings


def main() -> None:
    """Serves until the process is asked to stop."""
    memory.keep_together()
    process.run("embedding", EmbeddingSettings, serve)


def serve(settings: EmbeddingSettings) -> None:
    """Serves with these settings until the process is asked to stop."""
    asyncio.run(_serve(settings))


async def _serve(settings: EmbeddingSettings) -> None:
    catalogue = Catalogue(settings)
    servicer = EmbeddingServicer(catalogue, settings)
    service = serving.Service(NAME, servicer, add_EmbeddingServiceServicer_to_server, healthy=lambda: catalogue.healthy)
    try:
        async with serving.aio_server(settings.address("embedding"), [service]) as bound:
            await serving.stopped(bound)
    finally:
        await catalogue.close()


if __name__ == "__main__":
    main()
