"""Cutting at the window gives what the whole text would have given."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from hippovault_embedding.model import default_model
from hippovault_embedding.tokenizer import ModelTokenizer

MODEL = default_model()
TOKENIZER = ModelTokenizer(MODEL)
REFERENCE = Tokenizer.from_file(str(MODEL.tokenizer.path))
REFERENCE.no_padding()
REFERENCE.no_truncation()
REFERENCE.encode_special_tokens = True
CLS, SEP, UNKNOWN = 101, 102, 100


def whole(text: str) -> list[int]:
    """Returns the ids of the text, tokenised from end to end and cut only then."""
    ids = REFERENCE.encode(text).ids[1:-1]
    return [CLS, *ids[: MODEL.window - 2], SEP]


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
    assert TOKENIZER.tokenize(text).ids == whole(text)


PIECES = st.sampled_from(["hippo ", "x" * 120, " ", " " * 700, "é", "記", "Ω-", "unbelievably ", "\n", "[SEP] ", "😀"])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(PIECES, st.integers(1, 400)), max_size=8))
def test_any_text(pieces: list[tuple[str, int]]) -> None:
    text = "".join(piece * times for piece, times in pieces)
    tokens = TOKENIZER.tokenize(text)
    assert tokens.ids == whole(text)
    assert tokens.truncated == (len(REFERENCE.encode(text).ids) > MODEL.window)
    assert tokens.unknown == tokens.ids.count(UNKNOWN)


@pytest.mark.parametrize(
    ("text", "mostly"), [("plain words", False), ("𒀀 word", False), ("𒀀 𒀁 word", True), ("𒀀", True)]
)
def test_mostly_unknown(text: str, *, mostly: bool) -> None:
    assert TOKENIZER.tokenize(text).mostly_unknown is mostly
