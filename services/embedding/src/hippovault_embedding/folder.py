"""A model in a folder, as sentence-transformers lays it out: its ONNX export, its tokenizer, and how both are used."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hippovault_embedding.model import Model, ModelError, ModelFile, Pooling, opened

NETWORKS = ("onnx/model.onnx", "model.onnx")
POOLING_MODE = "pooling_mode_"
POOLINGS = {
    "mean": Pooling.MEAN,
    "mean_tokens": Pooling.MEAN,
    "cls": Pooling.CLS,
    "cls_token": Pooling.CLS,
    "max": Pooling.MAX,
    "max_tokens": Pooling.MAX,
}
MODULES = frozenset({"Transformer", "Pooling", "Normalize"})
QUERY_PROMPTS = ("query",)
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
NO_LIMIT = 1_000_000
"""From here on a tokenizer's limit means that it has none."""
AFTER_PADDING = frozenset({"camembert", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl"})
"""Kinds of model whose positions are counted from behind the padding token's id."""
WEIGHTS = re.compile(rb"\x0a\x08location\x12([\x01-\x7f])")
"""StringStringEntryProto of onnx.proto: key (field 1) "location", then the length of its value (field 2)."""
ENTRY_BYTES = 256
"""More than such an entry has."""
CHUNK_BYTES = 1024 * 1024


def read(name: str, folder: Path) -> Model:
    """Returns the model of a folder, having read all of its files once.

    Raises:
        ModelError: A file is damaged, or what it says cannot be done here; the message names it.
        OSError: A file cannot be read.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder; it should hold a model")
    network = next((path for each in NETWORKS if (path := folder / each).exists()), folder / NETWORKS[0])
    config = _json(folder / "config.json")
    prompts = _json(folder / "config_sentence_transformers.json", required=False)
    _check_modules(folder)
    _check_letters(folder)
    return Model(
        name=name,
        onnx=ModelFile.as_it_is(network),
        weights=[ModelFile.as_it_is(path) for path in _weights(network)],
        tokenizer=ModelFile.as_it_is(folder / "tokenizer.json"),
        dimensions=_positive(folder / "config.json", config, "hidden_size"),
        window=_window(folder, config),
        pooling=_pooling(folder / "1_Pooling" / "config.json", prompted=bool(prompts.get("prompts"))),
        query_prefix=_prefix(folder, prompts, QUERY_PROMPTS),
        document_prefix=_prefix(folder, prompts, DOCUMENT_PROMPTS),
    )


def _weights(network: Path) -> list[Path]:
    """Returns the files that a network refers to for its weights; they lie beside it."""
    names = sorted({location.decode(errors="replace") for location in _locations(network)})
    for name in names:
        if not name.isprintable():
            raise ModelError(f"{network} refers to weights in {name!r}, which is no file's name")
    return [network.parent / name for name in names]


def _locations(network: Path) -> Iterator[bytes]:
    with opened(network) as file:
        kept = b""
        while chunk := file.read(CHUNK_BYTES):
            content = kept + chunk
            for match in WEIGHTS.finditer(content):
                if (end := match.end() + match[1][0]) <= len(content):
                    yield content[match.end() : end]
            kept = content[-ENTRY_BYTES:]  # What begins here is seen whole with the next chunk.


def _check_modules(folder: Path) -> None:
    path = folder / "modules.json"
    for module in _json(path, list, required=False):
        kind = str(module.get("type", "")) if isinstance(module, dict) else ""
        if kind.rpartition(".")[2] not in MODULES:
            raise ModelError(f"{path} has a module {kind!r}; only {', '.join(sorted(MODULES))} can be served")


def _check_letters(folder: Path) -> None:
    path = folder / "sentence_bert_config.json"
    if _json(path, required=False).get("do_lower_case"):
        raise ModelError(f"{path}: do_lower_case must be false; what is done to letters stands in tokenizer.json")


def _window(folder: Path, config: Mapping[str, Any]) -> int:
    """Returns the smallest of what the files say that the model sees."""
    path, sentence = folder / "config.json", folder / "sentence_bert_config.json"
    shift = _limit(path, config, "pad_token_id", 1) + 1 if str(config.get("model_type")) in AFTER_PADDING else 0
    tokenizer = folder / "tokenizer_config.json"
    window = min(
        _limit(path, config, "max_position_embeddings") - shift,
        _limit(sentence, _json(sentence, required=False), "max_seq_length"),
        _limit(tokenizer, _json(tokenizer, required=False), "model_max_length"),
    )
    if not 0 < window < NO_LIMIT - shift:
        raise ModelError(f"{path}: max_position_embeddings must say how many tokens the model sees")
    return window


def _limit(path: Path, values: Mapping[str, Any], key: str, default: int = NO_LIMIT) -> int:
    return default if values.get(key) is None else min(_positive(path, values, key), NO_LIMIT)


def _pooling(path: Path, *, prompted: bool) -> Pooling:
    config = _json(path)
    modes = [key.removeprefix(POOLING_MODE) for key in config if key.startswith(POOLING_MODE) and config[key]]
    modes += [str(config["pooling_mode"])] if "pooling_mode" in config else []
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise ModelError(f"{path} says to pool by {modes!r}; expected one of mean, cls, max")
    if prompted and not config.get("include_prompt", True):
        raise ModelError(f"{path}: include_prompt must be true; prompts are always pooled")
    return POOLINGS[modes[0]]


def _prefix(folder: Path, config: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Returns the first prompt of these names that says anything; without any, the one for all texts."""
    path, prompts = folder / "config_sentence_transformers.json", config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(prompt, str) for prompt in prompts.values()):
        raise ModelError(f"{path}: prompts must be an object of strings")
    if prompts.keys().isdisjoint(names):
        names = (str(config.get("default_prompt_name")),)
    return next((prompts[name] for name in names if prompts.get(name)), "")


def _positive(path: Path, values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    if type(value) is not int or value < 1:
        raise ModelError(f"{path}: {key} must be a positive integer, is {value!r}")
    return value


def _json(path: Path, kind: type = dict, *, required: bool = True) -> Any:
    """Returns a file's object or list; an empty one for a file that need not be there and is not."""
    try:
        with opened(path) as file:
            value = json.load(file)
    except FileNotFoundError:
        if required:
            raise
        return kind()
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, kind):
        raise ModelError(f"{path} must hold a JSON {'object' if kind is dict else 'array'}")
    return value
