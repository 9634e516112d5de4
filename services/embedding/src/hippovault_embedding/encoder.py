"""A loaded model: tokenizer and session together."""

from __future__ import annotations

from collections.abc import Sequence

from hippovault_embedding.model import Model
from hippovault_embedding.session import ModelSession
from hippovault_embedding.tokenizer import ModelTokenizer, Tokens


class Encoder:
    """A model in memory. Importing this module loads ONNX Runtime, numpy and the tokenizer library.

    Args:
        model: What to load.
        threads: How many threads one inference uses.

    Raises:
        ModelError: A file is damaged, or not what the model says.
        OSError: A file cannot be read.
    """

    def __init__(self, model: Model, threads: int) -> None:
        self._tokenizer = ModelTokenizer(model)
        self._session = ModelSession(model, threads)

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        """Returns the tokens of each text."""
        return [self._tokenizer.tokenize(text) for text in texts]

    def embed(self, batch: Sequence[Tokens]) -> list[bytes]:
        """Returns one vector each, little-endian float32, of L2 norm 1, by one inference."""
        return self._session.embed([tokens.ids for tokens in batch])
