"""Folders with a tiny model, as a test needs them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

DATA = Path(__file__).parent.parent / "data" / "embedding"
TEXTS: list[str] = json.loads((DATA / "texts.json").read_text(encoding="utf-8"))
TINY_DIMENSIONS = 32
TINY_WINDOW = 48


def reference(name: str) -> npt.NDArray[np.float32]:
    """What sentence-transformers gives for TEXTS: `minilm`, or `tiny_` with pooling and input type."""
    with np.load(DATA / "reference.npz") as arrays:
        rows: npt.NDArray[np.float32] = arrays[name]
    return rows


def tiny(folder: Path, pooling: str = "mean") -> Path:
    """Makes a folder with the tiny model, pooled so."""
    shutil.copytree(DATA / "tiny", folder)
    if pooling != "mean":  # As earlier versions of sentence-transformers write it.
        modes = {f"pooling_mode_{mode}": False for mode in ("cls_token", "mean_tokens", "max_tokens")}
        chosen = "cls_token" if pooling == "cls" else "max_tokens"
        write_json(folder / "1_Pooling" / "config.json", modes | {f"pooling_mode_{chosen}": True})
    return folder


def write_json(path: Path, value: Any) -> None:
    """Puts a value into a file."""
    path.write_text(json.dumps(value), encoding="utf-8")


def change_json(path: Path, **members: Any) -> None:
    """Sets members of a file's object; None takes one out."""
    value = json.loads(path.read_text(encoding="utf-8")) | members
    write_json(path, {key: member for key, member in value.items() if member is not None})


def network(folder: Path) -> onnx.ModelProto:
    """The folder's network."""
    return onnx.load(folder / "onnx" / "model.onnx")


def save_with_external_weights(model: onnx.ModelProto, path: Path) -> Path:
    """Writes a network with its weights beside it, and returns their file."""
    onnx.save(model, path, save_as_external_data=True, location=f"{path.name}_data", size_threshold=1024)
    return path.with_name(f"{path.name}_data")


def take_int32(model: onnx.ModelProto) -> None:
    """Makes a network's inputs 32 bits wide."""
    casts = []
    for value in model.graph.input:
        inner, value.type.tensor_type.elem_type = f"{value.name}_64", TensorProto.INT32
        for node in model.graph.node:
            node.input[:] = [inner if name == value.name else name for name in node.input]
        casts.append(helper.make_node("Cast", [value.name], [inner], to=TensorProto.INT64))
    for cast in casts:
        model.graph.node.insert(0, cast)


def give_halves(model: onnx.ModelProto) -> None:
    """Makes a network's output half as precise."""
    (value,) = model.graph.output
    value.type.tensor_type.elem_type = TensorProto.FLOAT16
    model.graph.node[-1].output[0] = "whole"
    model.graph.node.append(helper.make_node("Cast", ["whole"], [value.name], to=TensorProto.FLOAT16))


def rename_output(model: onnx.ModelProto, name: str) -> None:
    """Calls a network's output otherwise."""
    model.graph.output[0].name = model.graph.node[-1].output[0] = name


def without_types(model: onnx.ModelProto) -> None:
    """Takes an input out of a network, as exports of models without token types have none."""
    value = next(value for value in model.graph.input if value.name == "token_type_ids")
    model.graph.input.remove(value)
    model.graph.node.insert(0, helper.make_node("Sub", ["input_ids", "input_ids"], ["token_type_ids"]))


def reverse_words(model: onnx.ModelProto) -> None:
    """Changes what a network computes."""
    _change_words(model, lambda words: words[::-1])


def overflow(model: onnx.ModelProto, token: int) -> None:
    """Makes the last hidden states of texts with this token infinite."""

    def change(words: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        rows = words.reshape(-1, TINY_DIMENSIONS).copy()
        rows[token] = np.inf
        return rows

    _change_words(model, change)


def _change_words(model: onnx.ModelProto, change: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]) -> None:
    weights = next(each for each in model.graph.initializer if each.name.endswith("word_embeddings.weight"))
    weights.raw_data = change(np.frombuffer(weights.raw_data, np.float32)).tobytes()
