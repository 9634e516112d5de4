"""A BERT encoder (Devlin et al. 2019) as an ONNX network, from its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
"""The first with Gelu."""
IR_VERSION = 9
HIDDEN = -10_000.0
"""Added to the attention to padding, which is exactly 0 after the softmax."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Shape:
    """What the weights do not tell."""

    layers: int
    heads: int
    epsilon: float


class Network:
    """Collects nodes and weights.

    Args:
        weights: By their names in a BERT checkpoint, without `bert.` in front; float32, except that the word embeddings
            may be int8 with float32 `…word_embeddings.scale` for each of equal blocks of a row.
        shape: What the weights do not tell.
    """

    def __init__(self, weights: Mapping[str, Array], shape: Shape) -> None:
        self._weights = weights
        self._shape = shape
        self._hidden = weights["embeddings.position_embeddings.weight"].shape[1]
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}

    def model(self) -> onnx.ModelProto:
        """Returns the network: token ids, mask and types in, last hidden states out."""
        hidden, bias = self._embeddings(), self._bias()
        for layer in range(self._shape.layers):
            hidden = self._layer(hidden, bias, f"encoder.layer.{layer}")
        self._nodes.append(helper.make_node("Identity", [hidden], ["last_hidden_state"]))
        axes = ["batch", "tokens"]
        names = ("input_ids", "attention_mask", "token_type_ids")
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, axes) for name in names]
        output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*axes, self._hidden])
        graph = helper.make_graph(self._nodes, "bert", inputs, [output], list(self._initializers.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    def _node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _constant(self, value: Array, name: str = "") -> str:
        name = name or f"constant_{len(self._initializers)}"
        self._initializers[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def _weight(self, name: str) -> str:
        return self._constant(self._weights[name], name)

    def _whole(self, *numbers: int) -> str:
        return self._constant(np.array(numbers, np.int64))

    def _embeddings(self) -> str:
        tokens = self._node("Shape", "input_ids", start=1, end=2)
        positions = self._weight("embeddings.position_embeddings.weight")
        position = self._node("Slice", positions, self._whole(0), tokens, self._whole(0))
        types = self._node("Gather", self._weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
        summed = self._node("Add", self._node("Add", self._words(), types), position)
        return self._normalized(summed, "embeddings.LayerNorm")

    def _words(self) -> str:
        name = "embeddings.word_embeddings"
        words = self._node("Gather", self._weight(f"{name}.weight"), "input_ids")
        if f"{name}.scale" not in self._weights:
            return words
        blocks = self._weights[f"{name}.scale"].shape[1]
        scales = self._node("Gather", self._weight(f"{name}.scale"), "input_ids")
        whole = self._node("Cast", words, to=TensorProto.FLOAT)
        blocked = self._node("Reshape", whole, self._whole(0, 0, blocks, self._hidden // blocks))
        scaled = self._node("Mul", blocked, self._node("Unsqueeze", scales, self._whole(-1)))
        return self._node("Reshape", scaled, self._whole(0, 0, self._hidden))

    def _bias(self) -> str:
        mask = self._node("Cast", "attention_mask", to=TensorProto.FLOAT)
        padding = self._node("Sub", self._constant(np.array(1, np.float32)), mask)
        return self._node(
            "Unsqueeze", self._node("Mul", padding, self._constant(np.array(HIDDEN, np.float32))), self._whole(1, 2)
        )

    def _layer(self, hidden: str, bias: str, name: str) -> str:
        attended = self._linear(
            self._attention(hidden, bias, f"{name}.attention.self"), f"{name}.attention.output.dense"
        )
        hidden = self._normalized(self._node("Add", attended, hidden), f"{name}.attention.output.LayerNorm")
        inner = self._node("Gelu", self._linear(hidden, f"{name}.intermediate.dense"))
        outer = self._linear(inner, f"{name}.output.dense")
        return self._normalized(self._node("Add", outer, hidden), f"{name}.output.LayerNorm")

    def _attention(self, hidden: str, bias: str, name: str) -> str:
        query = self._heads(self._linear(hidden, f"{name}.query"), [0, 2, 1, 3])
        key = self._heads(self._linear(hidden, f"{name}.key"), [0, 2, 3, 1])
        value = self._heads(self._linear(hidden, f"{name}.value"), [0, 2, 1, 3])
        scale = self._constant(np.array((self._hidden // self._shape.heads) ** -0.5, np.float32))
        scores = self._node("Mul", self._node("MatMul", query, key), scale)
        weights = self._node("Softmax", self._node("Add", scores, bias), axis=-1)
        mixed = self._node("Transpose", self._node("MatMul", weights, value), perm=[0, 2, 1, 3])
        return self._node("Reshape", mixed, self._whole(0, 0, self._hidden))

    def _heads(self, projected: str, axes: list[int]) -> str:
        heads = self._shape.heads
        split = self._node("Reshape", projected, self._whole(0, 0, heads, self._hidden // heads))
        return self._node("Transpose", split, perm=axes)

    def _linear(self, value: str, name: str) -> str:
        weight = self._constant(self._weights[f"{name}.weight"].T, f"{name}.weight")
        return self._node("Add", self._node("MatMul", value, weight), self._weight(f"{name}.bias"))

    def _normalized(self, value: str, name: str) -> str:
        weight, bias = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return self._node("LayerNormalization", value, weight, bias, axis=-1, epsilon=self._shape.epsilon)
