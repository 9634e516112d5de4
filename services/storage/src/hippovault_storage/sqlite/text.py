"""The keyword index's text: one function makes what is indexed, one makes what is matched against it.

FTS5's unicode61 takes a run of Chinese, Japanese, Korean or Thai characters (and of Thai's neighbours) for one word,
since nothing separates the words in it. Such runs are therefore cut into overlapping pairs, followed by the last
character alone, so that every substring is findable: one of two and more characters as the phrase of its pairs, a
single character as a prefix.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
"""English inflections by Porter's stemmer over Unicode words.

Marks (Mn, Mc) belong to words: the vowel signs of Indian scripts are marks, and without them other words remain.
"""

MAX_TERMS = 256
"""Distinct terms of one query that are matched; more would cost time and tell nothing."""

PHRASE_CHARACTERS = 4
"""A run up to this length is a word and matched as a phrase; a longer one is a sentence and matched pair by pair."""

HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
HIRAGANA = "\u3041-\u3096\u309d-\u309f"
KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"
SOUTH_EAST_ASIAN = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1780-\u17d3"
"""Thai, Lao, Burmese and Khmer, without their digits and punctuation."""

UNSPACED_RUN = re.compile(f"[{HAN}{HIRAGANA}{KATAKANA}{HANGUL}{SOUTH_EAST_ASIAN}]+")
SAME_SCRIPT_RUN = re.compile(f"[{HAN}]+|[{HIRAGANA}]+|[{KATAKANA}]+|[{HANGUL}]+|[{SOUTH_EAST_ASIAN}]+")

MARKS = "".join(mark for mark in map(chr, range(0x20000)) if unicodedata.category(mark) in {"Mn", "Mc"})
WORD = re.compile(f"(?:[^\\W_]|[{MARKS}])+")
"""What unicode61 takes for a word: letters and digits, with their marks."""

UNWRITTEN = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8"
    "\u06ea-\u06ed\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
"""What the same word is written with and without: Hebrew points, Arabic vowel signs, variant selectors."""

FUNCTION_WORDS = (
    "a about am an and any are as at be been being but by can could d did do does doing don for from had has have "
    "having he her hers him his how i if in into is isn it its ll m me my of on or our re s she should so "
    "some t than that the their them then there these they this those to us ve was we were what when where which who "
    "whom whose why will with would you your"
)
STOP_WORDS = frozenset(FUNCTION_WORDS.split())
"""English function words, and what apostrophes leave behind: they match everything and tell nothing."""


def indexed(text: str) -> str:
    """Returns the form in which a text is indexed."""
    if text.isascii():
        return text
    return UNSPACED_RUN.sub(lambda run: f" {' '.join(_pieces(run[0]))} ", _normal(text))


def indexed_hints(hints: Iterable[str]) -> str:
    """Returns the form in which the hints of a memory are indexed."""
    return indexed("\n".join(hints))


def terms(query: str) -> list[str]:
    """Returns the query's terms, each once, as FTS5 expressions.

    Nothing in the query is syntax: every term is quoted.

    Returns:
        The terms; none when the query is stop words or punctuation alone.
    """
    found = dict.fromkeys(term for word in WORD.findall(_normal(query).lower()) for term in _terms(word))
    return list(found)[:MAX_TERMS]


def match_expression(query: str) -> str:
    """Returns the FTS5 expression that finds any of the query's terms; "" when it has none."""
    return " OR ".join(terms(query))


def _normal(text: str) -> str:
    # Full-width letters, half-width katakana and ligatures are the same words as their plain forms. Composed first: the
    # hamza of an Arabic letter is a mark when apart, and part of the word.
    return UNWRITTEN.sub("", unicodedata.normalize("NFKC", text))


def _pieces(run: str) -> list[str]:
    return [*_pairs(run), run[-1]]


def _pairs(run: str) -> list[str]:
    return [run[start : start + 2] for start in range(len(run) - 1)]


def _terms(word: str) -> Iterator[str]:
    for part in UNSPACED_RUN.sub(lambda run: f" {run[0]} ", word).split():
        if UNSPACED_RUN.match(part):
            yield from _unspaced_terms(part)
        elif part not in STOP_WORDS:
            yield f'"{part}"'


def _unspaced_terms(run: str) -> Iterator[str]:
    words = SAME_SCRIPT_RUN.findall(run)
    # Hiragana beside other scripts is inflection and particles, as stop words are.
    content = [word for word in words if not re.match(f"[{HIRAGANA}]", word)] or words
    for word in content:
        if len(word) == 1:
            yield f'"{word}"*'
        elif len(word) <= PHRASE_CHARACTERS:
            yield f'"{" ".join(_pairs(word))}"'
        else:
            yield from (f'"{pair}"' for pair in _pairs(word))
