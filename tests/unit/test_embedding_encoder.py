"""A file that is intact but not the model it is said to be is refused when it is loaded."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from hippovault_embedding.model import ModelError, ModelFile, default_model
from hippovault_embedding.session import ModelSession
from hippovault_embedding.tokenizer import ModelTokenizer


def file(path: Path, content: bytes) -> ModelFile:
    path.write_bytes(content)
    return ModelFile(path, hashlib.sha256(content).hexdigest())


def test_other_dimensions() -> None:
    model = replace(default_model(), dimensions=768)
    with pytest.raises(ModelError) as caught:
        ModelSession(model, threads=1)
    assert str(model.onnx.path) in str(caught.value)
    assert "384" in str(caught.value)
    assert "768" in str(caught.value)


def test_other_inputs_and_outputs(tmp_path: Path) -> None:
    model = replace(default_model(), onnx=file(tmp_path / "model.onnx", identity_network()))
    with pytest.raises(ModelError, match=r"inputs .*'x'.* and outputs .*'y'.*, expected .*last_hidden_state"):
        ModelSession(model, threads=1)


def test_a_tokenizer_without_letters(tmp_path: Path) -> None:
    content = b'{"model": {"type": "BPE", "vocab": {}, "merges": []}}'
    model = replace(default_model(), tokenizer=file(tmp_path / "tokenizer.json", content))
    with pytest.raises(ModelError, match=r"tokenizer\.json has no token for the letter a"):
        ModelTokenizer(model)


def identity_network() -> bytes:
    """Returns an ONNX model of one Identity node, float x[1] to float y[1].

    Field numbers are those of onnx.proto: ModelProto ir_version 1, graph 7, opset_import 8; GraphProto node 1, name 2,
    input 11, output 12; NodeProto input 1, output 2, op_type 4.
    """
    node = field(1, b"x") + field(2, b"y") + field(4, b"Identity")
    graph = field(1, node) + field(2, b"g") + field(11, value(b"x")) + field(12, value(b"y"))
    return b"\x08\x08" + field(7, graph) + field(8, b"\x10\x0d")


def value(name: bytes) -> bytes:
    """Returns a ValueInfoProto: a float tensor of shape [1]."""
    shape = field(1, b"\x08\x01")
    return field(1, name) + field(2, field(1, b"\x08\x01" + field(2, shape)))


def field(number: int, content: bytes) -> bytes:
    """Returns a length-delimited protobuf field of fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content
