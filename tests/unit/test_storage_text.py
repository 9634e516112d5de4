"""What is indexed and what is matched against it."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippovault_storage.sqlite import text


@pytest.fixture(scope="module")
def index() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    connection.execute(f'CREATE VIRTUAL TABLE words USING fts5(body, tokenize="{text.TOKENIZER}")')
    yield connection
    connection.close()


def matches(index: apsw.Connection, content: str, query: str) -> bool:
    expression = text.match_expression(query)
    index.execute("DELETE FROM words; INSERT INTO words (body) VALUES (?)", (text.indexed(content),))
    return bool(index.execute("SELECT rowid FROM words WHERE words MATCH ?", (expression,)).fetchall())


def test_plain_text_is_indexed_as_it_is() -> None:
    assert text.indexed("The API listens on port 8443; café.") == "The API listens on port 8443; café."
    assert text.indexed_hints([]) == ""


def test_a_run_without_spaces_becomes_its_pairs_and_last_character() -> None:
    assert text.indexed("東京都").split() == ["東京", "京都", "都"]
    assert text.indexed("go東京go").split() == ["go", "東京", "京", "go"]
    assert text.indexed("家") == " 家 "


@pytest.mark.parametrize(
    ("query", "expression"),
    [
        ("What does the zebra eat?", '"zebra" OR "eat"'),
        ("Zebra zebra ZEBRA", '"zebra"'),
        ('"AND" OR NOT NEAR(x', '"not" OR "near" OR "x"'),
        ("user's re-run", '"user" OR "run"'),
        ("東京", '"東京"'),
        ("東京都", '"東京 京都"'),
        ("都", '"都"*'),
        ("東京に行った", '"東京" OR "行"*'),
        ("ありがとう", '"あり" OR "りが" OR "がと" OR "とう"'),
        ("what is the", ""),
        ("?!", ""),
        ("_ __ -", ""),
    ],
)
def test_a_query_becomes_its_quoted_terms(query: str, expression: str) -> None:
    assert text.match_expression(query) == expression


def test_the_terms_of_a_query_are_bounded() -> None:
    assert text.match_expression(" ".join(f"w{n}" for n in range(1000))).count(" OR ") == text.MAX_TERMS - 1


CJK = st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x4E40), min_size=1, max_size=30)


@given(CJK, st.data())
def test_every_substring_of_a_run_is_found(index: apsw.Connection, run: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(run) - 1))
    end = data.draw(st.integers(start + 1, len(run)))
    assert matches(index, f"before {run}, after", run[start:end])


@given(CJK, st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x4E40), min_size=2, max_size=4))
def test_a_word_that_is_no_substring_is_not_found(index: apsw.Connection, run: str, word: str) -> None:
    assert matches(index, run, word) == (word in run)


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_text_breaks_the_index_or_the_query(index: apsw.Connection, content: str, query: str) -> None:
    if text.match_expression(query):
        matches(index, content.replace("\0", ""), query)


WORDS = st.text(st.characters(categories=["Ll", "Lu", "Nd"], max_codepoint=0x24F), min_size=1, max_size=10)


@given(st.lists(WORDS, min_size=1, max_size=6), st.data())
def test_every_word_that_is_no_stop_word_is_found(
    index: apsw.Connection, words: list[str], data: st.DataObject
) -> None:
    word = data.draw(st.sampled_from(words))
    if text.match_expression(word):
        assert matches(index, ", ".join(words), word)
