"""What a hand-written program would do with the same model: tokenizers and ONNX Runtime, and nothing around them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from hippovault_embedding.model import default_model

Floats = NDArray[np.float32]

OUTPUT = "last_hidden_state"


class Program:
    """A model in this process, its session set up as the service's is.

    Args:
        threads: Of one inference.
        workers: Inferences at a time.
    """

    def __init__(self, threads: int, workers: int = 1) -> None:
        self.name = f"{workers} times {threads} threads"
        model = default_model()
        self._tokenizer = Tokenizer.from_file(str(model.tokenizer.path))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(model.window)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(str(model.onnx.path), options, providers=["CPUExecutionProvider"])
        self._workers = ThreadPoolExecutor(workers)

    def embed(self, text: str) -> Floats:
        """Returns the vector of a text."""
        vector: Floats = self._run([self._tokenizer.encode(text).ids])[0]
        return vector

    def embed_all(self, texts: Sequence[str], batch_tokens: int) -> int:
        """Embeds texts, shortest first, in batches of so many tokens with padding; returns their tokens without."""
        rows = sorted((encoding.ids for encoding in self._tokenizer.encode_batch(texts)), key=len)
        for _ in self._workers.map(self._run, _batches(rows, batch_tokens)):
            pass
        return sum(map(len, rows))

    def embed_each(self, texts: Sequence[str]) -> int:
        """Embeds texts one by one; returns their tokens."""
        rows = [self._tokenizer.encode(text).ids for text in texts]
        for row in rows:
            self._run([row])
        return sum(map(len, rows))

    def _run(self, rows: Sequence[Sequence[int]]) -> Floats:
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        mask = np.zeros_like(ids)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
            mask[place, : len(row)] = 1
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run([OUTPUT], fed)[0]
        sums = np.einsum("btd,bt->bd", hidden, mask.astype(np.float32))
        unit: Floats = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        return unit


def _batches(rows: Sequence[Sequence[int]], batch_tokens: int) -> list[list[Sequence[int]]]:
    """Returns rows, which are sorted by length, in batches."""
    batches: list[list[Sequence[int]]] = [[]]
    for row in rows:
        if batches[-1] and (len(batches[-1]) + 1) * len(row) > batch_tokens:
            batches.append([])
        batches[-1].append(row)
    return batches
