"""Token ids to unit vectors, by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from hippovault_embedding import token_codes
from hippovault_embedding.backend import Piece, Row
from hippovault_embedding.model import Model, ModelError, Pooling

INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
OUTPUTS = ("last_hidden_state", "token_embeddings")
"""What exports call the last hidden states; where they call it otherwise, it is the output of three dimensions."""
INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
FLOATS = frozenset({"tensor(float)", "tensor(float16)"})
RANK = 3
ERROR_SEVERITY = 3

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class ModelSession:
    """A model's network, in memory.

    Args:
        model: Its files are verified first.
        threads: How many threads one inference uses.

    Raises:
        ModelError: The file is damaged, or its inputs or outputs are not a sentence embedding model's.
        OSError: The file cannot be read.
    """

    def __init__(self, model: Model, threads: int) -> None:
        model.onnx.verify()
        self._model = model
        self._session = _session(model, threads)
        self._inputs = {node.name: INTEGERS.get(node.type) for node in self._session.get_inputs()}
        self._output = self._chosen_output()
        self._check()

    def run(self, pieces: Sequence[Piece]) -> list[Row]:
        """Returns what becomes of each piece, by one inference."""
        ids, mask = _padded([piece.ids for piece in pieces])
        hidden = self._hidden(ids, mask)
        pooled = _unit(POOLERS[self._model.pooling](hidden, mask)).astype("<f4")
        return [
            _row(vector, states, piece) if np.isfinite(vector).all() else self._refused()
            for vector, states, piece in zip(pooled, hidden, pieces, strict=True)
        ]

    def _refused(self) -> Row:
        """Returns what one text gets whose numbers overflow; the others of its batch may be other callers'."""
        return Row(b"", refused=f"the model {self._model.name} has no vector of finite numbers for it")

    def _hidden(self, ids: Integers, mask: Integers) -> Floats:
        """Returns the last hidden states, texts * tokens * dimensions."""
        offered = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        fed = {name: offered[name].astype(kind, copy=False) for name, kind in self._inputs.items()}
        hidden: Floats = self._session.run([self._output], fed)[0].astype(np.float32, copy=False)
        return hidden

    def _chosen_output(self) -> str:
        """Returns the output that holds the last hidden states.

        Raises:
            ModelError: There is none, or the network wants what is not known here.
        """
        outputs = {node.name: node for node in self._session.get_outputs()}
        fitting = [name for name, node in outputs.items() if len(node.shape) == RANK and node.type in FLOATS]
        if not self._inputs.keys() <= INPUTS or None in self._inputs.values() or not fitting:
            inputs = {node.name: node.type for node in self._session.get_inputs()}
            told = {name: f"{node.type} of rank {len(node.shape)}" for name, node in outputs.items()}
            raise ModelError(
                f"{self._model.onnx.path} has inputs {inputs} and outputs {told}, expected integer inputs among "
                f"{sorted(INPUTS)} and an output {OUTPUTS[0]} of floats of rank {RANK}"
            )
        return next((name for name in OUTPUTS if name in fitting), fitting[0])

    def _check(self) -> None:
        """Refuses an export of another shape now, before it gives vectors that mean nothing."""
        ids, mask = _padded([[0, 0, 0], [0, 0]])
        hidden = self._hidden(ids, mask)
        expected = (*ids.shape, self._model.dimensions)
        if hidden.shape != expected or not np.isfinite(hidden).all():
            raise ModelError(
                f"{self._model.onnx.path} gives shape {hidden.shape} for {self._output}, "
                f"expected finite numbers of shape {expected}"
            )


def _row(vector: Floats, states: Floats, piece: Piece) -> Row:
    return Row(vector.tobytes(), token_codes.encode(states[piece.told], piece.token_encoding))


def _session(model: Model, threads: int) -> Any:
    path, options = model.onnx.path, _options(threads)
    # By itself it would map them: this process would end with the file that somebody cuts off.
    weights = {str(file.path.relative_to(path.parent)): file.read() for file in model.weights}
    options.add_external_initializers_from_files_in_memory(
        [*weights], [*weights.values()], [*map(len, weights.values())]
    )
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's own have no common type.
        raise ModelError(f"{path} is not a network that ONNX Runtime can load: {error}") from error


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
    """Returns ids and attention mask, texts * tokens of the longest; id 0 pads, and the mask hides it.

    There is one token at least: networks fail on none, which is what some tokenizers make of a lone accent.
    """
    shape = len(batch), max(1, *map(len, batch))
    ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, tokens in enumerate(batch):
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    return ids, mask


def _mean(hidden: Floats, mask: Integers) -> Floats:
    """Returns the sums over the mask: they differ from the means by a factor, which the norm takes out."""
    sums: Floats = np.einsum("btd,bt->bd", hidden, mask.astype(np.float32))
    return sums


def _first(hidden: Floats, _: Integers) -> Floats:
    return hidden[:, 0]


def _largest(hidden: Floats, mask: Integers) -> Floats:
    largest: Floats = np.where(mask[:, :, None] == 1, hidden, -np.inf).max(axis=1)
    return largest


POOLERS = {Pooling.MEAN: _mean, Pooling.CLS: _first, Pooling.MAX: _largest}
"""From texts * tokens * dimensions to texts * dimensions."""


def _unit(vectors: Floats) -> Floats:
    with np.errstate(invalid="ignore"):  # Those that are not finite are refused one by one.
        unit: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit
