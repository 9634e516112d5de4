"""Cutting at the window gives what the whole text would have given."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from hippovault_embedding import windows
from hippovault_embedding.backend import Options, Prepared
from hippovault_embedding.model import default_model
from hippovault_embedding.tokenizer import ModelTokenizer

MODEL = default_model()
TOKENIZER = ModelTokenizer(MODEL)
REFERENCE = Tokenizer.from_file(str(MODEL.tokenizer.path))
REFERENCE.no_padding()
REFERENCE.no_truncation()
REFERENCE.encode_special_tokens = True
CLS, SEP, UNKNOWN = 101, 102, 100


def prepare(text: str, options: Options = Options()) -> Prepared:  # noqa: B008  # Frozen.
    return TOKENIZER.prepare(text, options)


def whole(text: str) -> list[int]:
    """Returns the ids of the text, tokenised from end to end and cut only then."""
    return cut(REFERENCE.encode(text).ids)


def cut(ids: list[int]) -> list[int]:
    """Returns what the window holds of the ids of a text."""
    return [CLS, *ids[1:-1][: MODEL.window - 2], SEP]


@pytest.mark.parametrize(
    "text",
    [
        "hello " * 5000,
        "x" * 60_000,
        # The characters' cut goes through the last word: its beginning has many pieces, the whole is one unknown token.
        "content " * 249 + "z" * 200 + " end",
        ("b" * 90 + " ") * 600,
        ("c" * 101 + " ") * 600,
        "start" + " " * 60_000 + "end",
        "記憶" * 5000,
        "." * 5000,
        "e\u0301" * 5000,
    ],
    ids=["words", "one word", "cut word", "long words", "too long words", "blanks", "cjk", "dots", "accents"],
)
def test_long_texts(text: str) -> None:
    assert prepare(text).pieces[0].ids == whole(text)


PIECES = st.sampled_from(["hippo ", "x" * 120, " ", " " * 700, "é", "記", "Ω-", "unbelievably ", "\n", "[SEP] ", "😀"])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(PIECES, st.integers(1, 400)), max_size=8))
def test_any_text(pieces: list[tuple[str, int]]) -> None:
    text = "".join(piece * times for piece, times in pieces)
    prepared = prepare(text)
    (piece,) = prepared.pieces
    ids = REFERENCE.encode(text).ids
    assert piece.ids == cut(ids)
    assert prepared.truncated == (len(ids) > MODEL.window)
    assert prepared.token_count == len(piece.ids)
    assert prepared.unknown == piece.ids.count(UNKNOWN)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(PIECES, st.integers(1, 400)), max_size=8), st.integers(2, 8))
def test_windows_hold_the_text_in_order_with_overlaps(pieces: list[tuple[str, int]], max_windows: int) -> None:
    text = "".join(piece * times for piece, times in pieces)
    prepared = prepare(text, Options(max_windows=max_windows))
    told: list[int] = []
    for piece in prepared.pieces:
        assert (piece.ids[0], piece.ids[-1]) == (CLS, SEP)
        assert piece.size == len(piece.ids) <= MODEL.window
        told += piece.ids[piece.told]
    ids = REFERENCE.encode(text).ids[1:-1]
    assert told == ids[: len(told)]
    assert prepared.truncated == (len(told) < len(ids))
    assert prepared.truncated <= (len(prepared.pieces) == max_windows)
    for before, after in pairwise(prepared.pieces):
        shared = after.told.start - 1
        assert shared == windows.overlap(MODEL.window - 2)
        assert before.ids[-1 - shared : -1] == after.ids[1 : 1 + shared]


@pytest.mark.parametrize("max_windows", [1, 3])
def test_prefixes_stand_before_every_window_and_are_not_told(max_windows: int) -> None:
    model = replace(MODEL, query_prefix="query: ", document_prefix="passage: ")
    tokenizer = ModelTokenizer(model)
    for query, prefix in ((True, "query: "), (False, "passage: ")):
        lead = [CLS, *REFERENCE.encode(prefix).ids[1:-1]]
        prepared = tokenizer.prepare("hippo " * 700, Options(query=query, max_windows=max_windows))
        assert len(prepared.pieces) == max_windows
        assert all(list(piece.ids[: len(lead)]) == lead for piece in prepared.pieces)
        assert (
            prepared.pieces[0].ids[prepared.pieces[0].told] == whole("hippo " * 700)[1:][: MODEL.window - len(lead) - 1]
        )
