"""The servicer without a transport, as a single process may call it."""

from __future__ import annotations

from dataclasses import replace

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault_embedding.embedder import Embedder
from hippovault_embedding.model import Model, default_model
from hippovault_embedding.servicer import EmbeddingServicer


async def vectors(model: Model, *requests: pb.EmbedRequest) -> list[bytes]:
    embedder = Embedder(model, threads=1)
    servicer = EmbeddingServicer(embedder, max_texts=8, max_text_bytes=65_536)
    answers = [(await servicer.Embed(request, None)).vectors for request in requests]
    embedder.close()
    return answers


async def test_each_input_type_gets_the_models_prefix() -> None:
    plain = default_model()
    prefixed = replace(plain, query_prefix="query: ", document_prefix="passage: ")
    answers = await vectors(
        prefixed,
        pb.EmbedRequest(texts=["hello"], input_type=pb.INPUT_TYPE_QUERY),
        pb.EmbedRequest(texts=["hello"], input_type=pb.INPUT_TYPE_DOCUMENT),
        pb.EmbedRequest(texts=["hello"]),
    )
    expected = await vectors(
        plain,
        pb.EmbedRequest(texts=["query: hello"]),
        pb.EmbedRequest(texts=["passage: hello"]),
        pb.EmbedRequest(texts=["passage: hello"]),
    )
    assert answers == expected
