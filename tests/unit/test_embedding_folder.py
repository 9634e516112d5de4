"""Model folders of many shapes: what is read from them, and what is refused by name."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import onnx
import pytest

from hippovault_embedding import folder
from hippovault_embedding.backend import Options, Piece
from hippovault_embedding.model import ModelError, Pooling
from hippovault_embedding.session import ModelSession
from hippovault_embedding.tokenizer import ModelTokenizer
from support import model_folders
from support.model_folders import TEXTS, change_json, tiny, write_json

VOCABULARY = json.loads((model_folders.DATA / "tiny" / "tokenizer.json").read_text())["model"]["vocab"]

JSON_FILES = (
    "config.json",
    "1_Pooling/config.json",
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "tokenizer_config.json",
)
KEYS = (
    "hidden_size",
    "max_position_embeddings",
    "pad_token_id",
    "model_type",
    "pooling_mode",
    "pooling_mode_cls_token",
    "prompts",
    "query",
    "default_prompt_name",
    "type",
    "max_seq_length",
    "model_max_length",
)

Floats = npt.NDArray[np.float32]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tiny(tmp_path / "model")


def vectors(path: Path) -> Floats:
    model = folder.read("tiny", path)
    tokenizer, session = ModelTokenizer(model), ModelSession(model, threads=1)
    rows = session.run([tokenizer.prepare(text, Options()).pieces[0] for text in TEXTS])
    return np.stack([np.frombuffer(row.vector, "<f4") for row in rows])


def assert_same(path: Path, cosine: float = 0.9999) -> None:
    expected = model_folders.reference("tiny_mean_document")
    assert (vectors(path) * expected).sum(axis=1).min() >= cosine


# What is read


def test_all_that_is_said_is_read(path: Path) -> None:
    model = folder.read("tiny", path)
    assert (model.name, model.dimensions, model.window, model.pooling) == ("tiny", 32, 48, Pooling.MEAN)
    assert (model.query_prefix, model.document_prefix) == ("query: ", "passage: ")


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_poolings(tmp_path: Path, pooling: str) -> None:
    expected = model_folders.reference(f"tiny_{pooling}_document")
    assert (vectors(tiny(tmp_path / "model", pooling)) * expected).sum(axis=1).min() >= 0.9999


def test_a_network_beside_the_tokenizer(path: Path) -> None:
    (path / "onnx" / "model.onnx").rename(path / "model.onnx")
    assert_same(path)


@pytest.mark.parametrize("change", [model_folders.take_int32, model_folders.without_types])
def test_only_the_declared_inputs_are_fed(path: Path, change: Callable[[onnx.ModelProto], None]) -> None:
    network = model_folders.network(path)
    change(network)
    onnx.save(network, path / "onnx" / "model.onnx")
    assert_same(path)


@pytest.mark.parametrize("name", ["token_embeddings", "hidden"])
def test_an_output_of_another_name_is_found(path: Path, name: str) -> None:
    network = model_folders.network(path)
    model_folders.rename_output(network, name)
    onnx.save(network, path / "onnx" / "model.onnx")
    assert_same(path)


def test_a_pooled_output_beside_is_not_taken(path: Path) -> None:
    network = model_folders.network(path)
    reduced = onnx.helper.make_node("ReduceMax", ["last_hidden_state"], ["sentence_embedding"], keepdims=0)
    network.graph.node.append(reduced)
    value = onnx.helper.make_tensor_value_info("sentence_embedding", onnx.TensorProto.FLOAT, [])
    network.graph.output.insert(0, value)
    onnx.save(network, path / "onnx" / "model.onnx")
    assert_same(path)


def test_an_output_of_halves(path: Path) -> None:
    network = model_folders.network(path)
    model_folders.give_halves(network)
    onnx.save(network, path / "onnx" / "model.onnx")
    assert_same(path, 0.999)


@pytest.mark.parametrize(
    ("file", "members", "window"),
    [
        ("config.json", {"max_position_embeddings": 40}, 40),
        ("sentence_bert_config.json", {"max_seq_length": 30}, 30),
        ("sentence_bert_config.json", {"max_seq_length": 300}, 48),
        ("tokenizer_config.json", {"model_max_length": int(1e30)}, 128),
        ("tokenizer_config.json", {"model_max_length": None}, 128),
    ],
)
def test_the_smallest_window_is_taken(path: Path, file: str, members: dict[str, int], window: int) -> None:
    change_json(path / file, **members)
    assert folder.read("tiny", path).window == window


def test_positions_behind_the_padding_are_not_counted(path: Path) -> None:
    change_json(path / "config.json", model_type="xlm-roberta", pad_token_id=1, max_position_embeddings=42)
    assert folder.read("tiny", path).window == 40


@pytest.mark.parametrize(
    ("prompts", "default", "expected"),
    [
        ({"query": "q: ", "passage": "p: "}, None, ("q: ", "p: ")),
        ({"query": "q: ", "document": "", "passage": "p: "}, None, ("q: ", "p: ")),
        ({"query": "q: ", "document": "d: ", "passage": "p: "}, None, ("q: ", "d: ")),
        ({"query": "q: "}, None, ("q: ", "")),
        ({"query": "q: ", "document": ""}, "query", ("q: ", "")),
        ({"all": "a: "}, "all", ("a: ", "a: ")),
        ({}, None, ("", "")),
    ],
)
def test_prompts(path: Path, prompts: dict[str, str], default: str | None, expected: tuple[str, str]) -> None:
    write_json(path / "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": default})
    model = folder.read("tiny", path)
    assert (model.query_prefix, model.document_prefix) == expected


def test_files_that_may_be_missing(path: Path) -> None:
    for name in ("modules.json", "config_sentence_transformers.json", "tokenizer_config.json"):
        (path / name).unlink()
    (path / "sentence_bert_config.json").unlink()
    model = folder.read("tiny", path)
    assert (model.window, model.query_prefix) == (128, "")


# Its identity


def test_a_name_or_a_place_does_not_change_the_revision(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "other")
    assert folder.read("other", tmp_path / "other").revision == folder.read("tiny", path).revision


def test_whatever_shapes_vectors_changes_the_revision(path: Path) -> None:
    revisions = [folder.read("tiny", path).revision]
    network = model_folders.network(path)
    model_folders.reverse_words(network)
    for change in (
        lambda: onnx.save(network, path / "onnx" / "model.onnx"),
        lambda: (path / "tokenizer.json").write_bytes((path / "tokenizer.json").read_bytes() + b" "),
        lambda: write_json(path / "1_Pooling" / "config.json", {"pooling_mode": "max"}),
        lambda: change_json(path / "tokenizer_config.json", model_max_length=47),
        lambda: change_json(path / "config_sentence_transformers.json", prompts={"query": "q: "}),
    ):
        change()
        revisions.append(folder.read("tiny", path).revision)
    assert len(set(revisions)) == len(revisions)


def test_weights_in_a_file_of_their_own(path: Path) -> None:
    network = model_folders.network(path)
    weights = model_folders.save_with_external_weights(network, path / "onnx" / "model.onnx")
    assert_same(path)
    model = folder.read("tiny", path)
    assert [file.path for file in model.weights] == [weights]
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert folder.read("tiny", path).revision != model.revision
    with pytest.raises(ModelError, match=r"model\.onnx_data has SHA-256"):
        ModelSession(model, threads=1)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.onnx_data"):
        folder.read("tiny", path)


# What is refused


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", "{", r"config\.json is not JSON"),
        ("config.json", "[]", r"config\.json must hold a JSON object"),
        ("config.json", '{"hidden_size": "32"}', r"config\.json: hidden_size must be a positive integer, is '32'"),
        ("config.json", '{"hidden_size": 32, "max_position_embeddings": 0}', "max_position_embeddings must be"),
        ("tokenizer_config.json", '{"model_max_length": "x"}', r"tokenizer_config\.json: model_max_length"),
        ("sentence_bert_config.json", '{"do_lower_case": true}', "do_lower_case must be false"),
        ("modules.json", "{}", r"modules\.json must hold a JSON array"),
        ("modules.json", '[{"type": "sentence_transformers.models.Dense"}]', r"modules\.json has a module .*Dense"),
        ("modules.json", "[1]", r"modules\.json has a module"),
        (
            "1_Pooling/config.json",
            '{"pooling_mode": "lasttoken"}',
            r"by \['lasttoken'\]; expected one of mean, cls",
        ),
        ("1_Pooling/config.json", '{"pooling_mode_weightedmean_tokens": true}', "by .*weightedmean_tokens"),
        (
            "1_Pooling/config.json",
            '{"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true}',
            "by .*cls_token.*max_tokens",
        ),
        ("1_Pooling/config.json", "{}", r"by \[\]"),
        ("1_Pooling/config.json", '{"pooling_mode": "mean", "include_prompt": false}', "include_prompt must be true"),
        ("config_sentence_transformers.json", '{"prompts": {"query": 1}}', "prompts must be an object of strings"),
        ("config_sentence_transformers.json", '{"prompts": ["query"]}', "prompts must be an object of strings"),
    ],
)
def test_a_file_that_says_what_cannot_be_done(path: Path, file: str, content: str, message: str) -> None:
    (path / file).write_text(content)
    with pytest.raises(ModelError, match=message) as caught:
        folder.read("tiny", path)
    assert str(path / file) in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["cls", "roberta", "query"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=4,
)


@hypothesis.settings(max_examples=60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(file=st.sampled_from(JSON_FILES), key=st.sampled_from(KEYS), value=JSON, whole=st.booleans())
def test_whatever_is_said_is_read_or_refused(path: Path, file: str, key: str, value: object, *, whole: bool) -> None:
    before = (path / file).read_bytes()
    if whole or not isinstance(json.loads(before), dict):
        write_json(path / file, value)
    else:
        change_json(path / file, **{key: value})
    try:
        model = folder.read("tiny", path)
        problem = ""
    except ModelError as error:
        problem = str(error)
    finally:
        (path / file).write_bytes(before)
    if problem:
        assert str(path).encode() in problem.encode()  # Any client can be told of it.
    else:
        assert model.window > 0


@pytest.mark.parametrize("file", JSON_FILES)
@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"\x00", b""], ids=["deep", "not UTF-8", "NUL", "empty"])
def test_bytes_that_are_no_json(path: Path, file: str, content: bytes) -> None:
    (path / file).write_bytes(content)
    with pytest.raises(ModelError, match=re.escape(f"{path / file} is not JSON")):
        folder.read("tiny", path)


@pytest.mark.parametrize("place", range(folder.CHUNK_BYTES - 20, folder.CHUNK_BYTES + 2))
def test_weights_told_where_two_chunks_meet(path: Path, place: int) -> None:
    network = path / "onnx" / "model.onnx"
    entry = b"\x0a\x08location\x12\x04name"
    network.write_bytes(bytes(place) + entry + bytes(10))
    with pytest.raises(FileNotFoundError, match="/name'"):
        folder.read("tiny", path)


def test_weights_in_what_is_no_file(path: Path) -> None:
    network = path / "onnx" / "model.onnx"
    network.write_bytes(network.read_bytes() + b"\x0a\x08location\x12\x03a\x00b")
    with pytest.raises(ModelError, match=r"model\.onnx refers to weights in 'a\\x00b'"):
        folder.read("tiny", path)


def test_a_window_that_nobody_tells(path: Path) -> None:
    change_json(path / "config.json", max_position_embeddings=None)
    change_json(path / "tokenizer_config.json", model_max_length=None)
    with pytest.raises(ModelError, match=r"config\.json: max_position_embeddings must say"):
        folder.read("tiny", path)


def test_a_window_that_the_prefix_fills(path: Path) -> None:
    change_json(path / "tokenizer_config.json", model_max_length=4)
    with pytest.raises(ModelError, match="no room for text in a window of 4"):
        ModelTokenizer(folder.read("tiny", path))


@pytest.mark.parametrize("cut", [0, 0.5, 0.999])
def test_a_network_that_is_cut_off(path: Path, cut: float) -> None:
    network = path / "onnx" / "model.onnx"
    content = network.read_bytes()
    network.write_bytes(content[: int(len(content) * cut)])
    with pytest.raises(ModelError, match=r"model\.onnx is not a network"):
        ModelSession(folder.read("tiny", path), threads=1)


def test_other_dimensions(path: Path) -> None:
    change_json(path / "config.json", hidden_size=64)
    with pytest.raises(ModelError, match=r"gives shape \(2, 3, 32\) .* expected .* \(2, 3, 64\)"):
        ModelSession(folder.read("tiny", path), threads=1)


def test_a_text_whose_numbers_overflow_is_refused_alone(path: Path) -> None:
    network = model_folders.network(path)
    model_folders.overflow(network, token=VOCABULARY["a"])
    onnx.save(network, path / "onnx" / "model.onnx")
    assert refused(path, [VOCABULARY["a"]]) == "the model tiny has no vector of finite numbers for it"


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_text_of_no_tokens_is_refused_alone(tmp_path: Path, pooling: str) -> None:
    assert refused(tiny(tmp_path / "model", pooling), [])


def refused(path: Path, ids: list[int]) -> str:
    """Computes these tokens alone and beside others, which must stay as they are, and returns what is said of them."""
    session = ModelSession(folder.read("tiny", path), threads=1)
    wrong, right = Piece(ids, len(ids)), Piece([VOCABULARY["b"], VOCABULARY["c"]], 2)
    (alone,), (kept,), both = session.run([wrong]), session.run([right]), session.run([wrong, right])
    assert alone == both[0]
    assert alone.vector == b""
    assert np.frombuffer(both[1].vector, "<f4") == pytest.approx(np.frombuffer(kept.vector, "<f4"), abs=1e-6)
    return alone.refused


def test_a_tokenizer_that_is_none(path: Path) -> None:
    (path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json is not a tokenizer"):
        ModelTokenizer(folder.read("tiny", path))
