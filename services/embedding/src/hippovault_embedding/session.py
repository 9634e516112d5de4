"""Token ids to unit vectors, by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from hippovault_embedding import token_codes
from hippovault_embedding.backend import Piece, Row
from hippovault_embedding.model import Model, ModelError

INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
OUTPUT = "last_hidden_state"
ERROR_SEVERITY = 3

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class ModelSession:
    """A model's network, in memory.

    Args:
        model: Its file is verified first.
        threads: How many threads one inference uses.

    Raises:
        ModelError: The file is damaged, or its inputs or outputs are not a sentence embedding model's.
        OSError: The file cannot be read.
    """

    def __init__(self, model: Model, threads: int) -> None:
        model.onnx.verify()
        self._session = onnxruntime.InferenceSession(
            str(model.onnx.path), _options(threads), providers=["CPUExecutionProvider"]
        )
        self._inputs = {node.name for node in self._session.get_inputs()}
        self._check(model)

    def run(self, pieces: Sequence[Piece]) -> list[Row]:
        """Returns what becomes of each piece, by one inference."""
        ids, mask = _padded([piece.ids for piece in pieces])
        hidden = self._hidden(ids, mask)
        pooled = _mean_pooled(hidden, mask).astype("<f4")
        return [
            Row(pooled[index].tobytes(), token_codes.encode(hidden[index, piece.own], piece.token_encoding))
            for index, piece in enumerate(pieces)
        ]

    def _hidden(self, ids: Integers, mask: Integers) -> Floats:
        """Returns the last hidden states, texts * tokens * dimensions."""
        offered = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        fed = {name: array for name, array in offered.items() if name in self._inputs}
        hidden: Floats = self._session.run([OUTPUT], fed)[0]
        return hidden

    def _check(self, model: Model) -> None:
        """Refuses an export of another shape now, before it gives vectors that mean nothing."""
        path, outputs = model.onnx.path, [node.name for node in self._session.get_outputs()]
        if not self._inputs <= INPUTS or OUTPUT not in outputs:
            raise ModelError(
                f"{path} has inputs {sorted(self._inputs)} and outputs {outputs}, "
                f"expected inputs among {sorted(INPUTS)} and an output {OUTPUT}"
            )
        ids, mask = _padded([[0, 0, 0], [0, 0]])
        hidden = self._hidden(ids, mask)
        expected = (*ids.shape, model.dimensions)
        if hidden.shape != expected or hidden.dtype != np.float32 or not np.isfinite(hidden).all():
            raise ModelError(
                f"{path} gives {hidden.dtype} of shape {hidden.shape}, expected finite float32 of shape {expected}"
            )


def _options(threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = ERROR_SEVERITY
    # The arena would keep what the largest batch needed for good.
    options.enable_cpu_mem_arena = False
    # Idle threads must not burn the cores of the other processes.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _padded(batch: Sequence[Sequence[int]]) -> tuple[Integers, Integers]:
    """Returns ids and attention mask, texts * tokens of the longest; id 0 pads, and the mask hides it."""
    shape = len(batch), max(map(len, batch))
    ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, tokens in enumerate(batch):
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    return ids, mask


def _mean_pooled(hidden: Floats, mask: Integers) -> Floats:
    """Returns the unit vectors of the means over the mask, texts * dimensions.

    The sum stands for the mean: they differ by a factor, which the norm takes out.
    """
    sums = np.einsum("btd,bt->bd", hidden, mask.astype(np.float32))
    unit: Floats = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return unit
