"""A model's identity and its files."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from hippovault_embedding.model import ModelError, ModelFile, default_model


def test_whatever_shapes_vectors_changes_the_revision() -> None:
    model = default_model()
    other = ModelFile(Path("other"), "0" * 64)
    changed = [
        replace(model, onnx=other),
        replace(model, tokenizer=other),
        replace(model, window=128),
        replace(model, query_prefix="query: "),
        replace(model, document_prefix="query: "),
    ]
    assert len({model.revision, *(each.revision for each in changed)}) == 1 + len(changed)


def test_a_name_or_a_place_does_not_change_the_revision() -> None:
    model = default_model()
    moved = replace(model, name="other", onnx=replace(model.onnx, path=Path("elsewhere")))
    assert moved.revision == model.revision


def test_the_default_models_revision_is_stable() -> None:
    # Stored vectors carry it: when this changes, every memory needs a new embedding.
    assert default_model().revision == "be7810620b05b73c"


def test_the_default_models_files_are_what_they_should_be() -> None:
    model = default_model()
    model.onnx.verify()
    model.tokenizer.verify()


def test_a_changed_file_is_told_with_both_digests(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"changed")
    expected, actual = hashlib.sha256(b"original").hexdigest(), hashlib.sha256(b"changed").hexdigest()
    with pytest.raises(ModelError) as caught:
        ModelFile(path, expected).verify()
    assert str(caught.value) == f"{path} has SHA-256 {actual}, expected {expected}"
