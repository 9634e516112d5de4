"""What a server of embeddings may answer, and what is made of it."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]


class AnswerError(Exception):
    """An answer is not what it must be; the message says what is wrong and quotes nothing."""


def unit_vectors(body: bytes, count: int) -> Matrix:
    """Returns the vectors of an answer in the order of the texts, each scaled to L2 norm 1.

    Args:
        body: JSON: `data` is a list of objects with `index` and `embedding`, in any order; an embedding is a list of
            numbers, or base64 of little-endian float32.
        count: Texts that were sent.

    Raises:
        AnswerError: It is anything else.
    """
    vectors = [_vector(item["embedding"], place) for place, item in enumerate(_ordered(_items(body), count))]
    lengths = {len(vector) for vector in vectors}
    if len(lengths) > 1:
        raise AnswerError(f"vectors of {' and '.join(map(str, sorted(lengths)))} dimensions in one answer")
    return _scaled(np.array(vectors))


def _items(body: bytes) -> list[Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise AnswerError("something that is no JSON") from None
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list):
        raise AnswerError("JSON without a list `data`")
    return items


def _ordered(items: list[Any], count: int) -> list[dict[str, Any]]:
    """Returns the items in the order of the texts."""
    if len(items) != count:
        raise AnswerError(f"{len(items)} vectors for {count} texts")
    by_index: dict[int, dict[str, Any]] = {}
    for item in items:
        index = item.get("index") if isinstance(item, dict) else None
        if type(index) is not int or not 0 <= index < count or index in by_index:
            raise AnswerError(f"an item of `data` whose `index` is not one of 0 to {count - 1}, each once")
        if "embedding" not in item:
            raise AnswerError(f"an item of `data` without an `embedding`, at index {index}")
        by_index[index] = item
    return [by_index[index] for index in range(count)]


def _vector(embedding: Any, index: int) -> npt.NDArray[np.float64]:
    """Returns the numbers of an embedding."""
    try:
        if isinstance(embedding, str):
            values: npt.NDArray[Any] = np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
        else:
            values = np.array(embedding)
    except ValueError:
        values = np.array(None)
    if values.ndim != 1 or not values.size or values.dtype.kind not in "fiu":
        raise AnswerError(f"an `embedding` that is no list of numbers nor their base64, at index {index}")
    return values.astype(np.float64)


def _scaled(vectors: npt.NDArray[np.float64]) -> Matrix:
    """Returns the vectors with L2 norm 1; not even the largest and the smallest numbers overflow on the way."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    for problem, wrong in (("a number that is not finite", ~np.isfinite(largest)), ("nothing but zeros", largest == 0)):
        if wrong.any():
            raise AnswerError(f"a vector with {problem}, at index {int(wrong.argmax())}")
    scaled = vectors / largest
    units: Matrix = (scaled / np.linalg.norm(scaled, axis=1, keepdims=True)).astype("<f4")
    return units
