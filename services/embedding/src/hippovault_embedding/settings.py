"""What the embedding process can be told."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated

from cyclopts import Parameter, validators

from hippovault_chassis.memory_rules import MAX_CONTENT_BYTES
from hippovault_chassis.settings import ProcessSettings
from hippovault_embedding.model import PACKAGED

MAX_DEFAULT_WORKERS = 4
"""Other processes want the cores too."""

Positive = Parameter(validator=validators.Number(gte=1))


def default_workers() -> int:
    """Returns one worker a core that this process may use, at most four."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(cores or 1, MAX_DEFAULT_WORKERS)


def _by_commas(_: object, value: str, *, delimiter: str | None = None) -> list[str]:  # noqa: ARG001  # Cyclopts asks so.
    return value.split(",")


@dataclass(frozen=True, kw_only=True)
class EmbeddingSettings(ProcessSettings):
    """HippoVault's embedding service: text to vectors."""

    model: Annotated[list[str], Parameter(negative=(), env_var_split=_by_commas)] = field(
        default_factory=lambda: [PACKAGED]
    )
    """Models to serve, the default one first: all-MiniLM-L6-v2, a folder with an ONNX model, or a server with OpenAI's
    API as https://host/v1?model=MODEL&key_variable=KEY, where KEY is the environment variable that has the key. NAME=
    before one calls it so. The variable has commas between them."""
    # On two cores, 32 callers of one and of four texts each had 186 and 228 texts a second with two workers of one
    # thread, 149 and 178 with one worker of two.
    workers: Annotated[int, Positive, Parameter(show_default=False)] = field(default_factory=default_workers)
    """Inferences at a time (default: one a core, at most 4)."""
    threads: Annotated[int, Positive] = 1
    """Threads of one inference; workers times threads should not be more than there are cores."""
    max_texts: Annotated[int, Positive] = 256
    """Texts in one request."""
    # Every memory that may be stored must be embeddable.
    max_text_bytes: Annotated[int, Parameter(validator=validators.Number(gte=MAX_CONTENT_BYTES))] = MAX_CONTENT_BYTES
    """UTF-8 bytes in one text."""
    # Processor time a token with the default model, of texts of 50 tokens, in µs: 307 with 64 tokens, 233 with 128, 216
    # with 256, 219 with 450, 222 with 600. More than 256 gain nothing, and the next query waits for all of them. 32
    # callers of four texts each had 228 texts a second with 256 and 210 with 600.
    max_batch_tokens: Annotated[int, Positive] = 256
    """Tokens of one inference, padding included; a longer text is computed alone."""
    # While 32 callers loaded documents and one asked without a break, 90 % of its queries took at most 32 ms with 64
    # tokens, 45 with 96 and 52 with 128, 10 without the load; documents went at 1,765, 2,212 and 2,295 tokens a second.
    urgent_batch_tokens: Annotated[int, Positive] = 64
    """Tokens of one inference of documents while queries come, since the next query waits for it."""
    max_queue_tokens: Annotated[int, Positive] = 65_536
    """Tokens that wait, of queries and of documents each, before calls are refused."""
    idle_seconds: Annotated[float, Parameter(validator=validators.Number(gte=0))] = 900.0
    """Seconds without a call until a model leaves memory; 0 keeps it."""
    cache_mebibytes: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 16
    """MiB of vectors that are kept for texts that come again; 0 keeps none."""
