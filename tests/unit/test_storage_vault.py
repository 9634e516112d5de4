"""Sealed values: each belongs to one column of one version of one memory."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hippovault_chassis.errors import ServiceError
from hippovault_storage.vault import PLAIN, Place, SealingVault, Value, Vault, framed
from support.storage import Code

KEYS = {bytes([n] * 8): bytes([n] * 32) for n in range(3)}
FIRST, SECOND, _ = KEYS
PLACE = Place("namespace", "category", "key", 1, 7)


def vault(*ids: bytes) -> SealingVault:
    return SealingVault({key_id: KEYS[key_id] for key_id in ids or (FIRST,)}, bytes(32))


def problem(opening: Vault, place: Place, column: str, value: Value) -> str:
    with pytest.raises(ServiceError) as caught:
        opening.open(place, column, value)
    assert (caught.value.code, caught.value.reason) == (Code.DATA_LOSS, "VALUE_NOT_AUTHENTIC")
    assert f"column {column} of memory {place.memory_id}" in caught.value.message
    return caught.value.message


@given(st.text())
def test_a_sealed_text_comes_back(text: str) -> None:
    sealed = vault().seal(PLACE, "content", text)
    assert isinstance(sealed, bytes)
    assert vault().open(PLACE, "content", sealed) == text
    assert sealed != vault().seal(PLACE, "content", text)


def test_nothing_is_nothing_to_hide() -> None:
    for each in (PLAIN, vault()):
        assert each.seal(PLACE, "tags", None) is None
        assert not each.open(PLACE, "tags", None)


OTHER_PLACES = [
    PLACE._replace(namespace="n"),
    PLACE._replace(category="c"),
    PLACE._replace(key="k"),
    PLACE._replace(version=2),
    PLACE._replace(memory_id=8),
]


@pytest.mark.parametrize("other", OTHER_PLACES)
def test_a_value_opens_in_its_own_place_alone(other: Place) -> None:
    sealed = vault().seal(PLACE, "content", "a secret")
    message = problem(vault(), other, "content", sealed)
    assert "secret" not in message
    assert "belongs to another memory or version" in problem(vault(), PLACE, "hints", sealed)


def test_parts_that_join_to_the_same_text_are_different_places() -> None:
    sealed = vault().seal(Place("a:b", "c", "", 1, 1), "content", "text")
    for namespace, category, key in [("a", "b:c", ""), ("a:bc", "", ""), ("a:b", "", "c"), ("", "a:bc", "")]:
        problem(vault(), Place(namespace, category, key, 1, 1), "content", sealed)


@given(st.lists(st.text(max_size=3), max_size=4), st.lists(st.text(max_size=3), max_size=4))
def test_framed_parts_tell_their_bounds(first: list[str], second: list[str]) -> None:
    assert (framed(*first) == framed(*second)) == (first == second)


def test_every_changed_byte_is_noticed() -> None:
    sealed = vault().seal(PLACE, "content", "text")
    assert isinstance(sealed, bytes)
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        problem(vault(FIRST, SECOND), PLACE, "content", bytes(changed))
        problem(vault(), PLACE, "content", sealed[:at])


@pytest.mark.parametrize("value", ["plain", b"plain", "", b""])
def test_plaintext_is_refused_where_a_sealed_value_belongs(value: Value) -> None:
    assert "is not encrypted" in problem(vault(), PLACE, "content", value)


def test_values_say_which_key_seals_them() -> None:
    old = vault(FIRST)
    sealed = old.seal(PLACE, "content", "text")
    assert "a key that this store does not have" in problem(vault(SECOND), PLACE, "content", sealed)
    both = vault(SECOND, FIRST)
    assert both.open(PLACE, "content", sealed) == "text"
    again = both.seal(PLACE, "content", "text")
    assert vault(SECOND).open(PLACE, "content", again) == "text"
    old.use({SECOND: KEYS[SECOND], FIRST: KEYS[FIRST]})
    assert old.open(PLACE, "content", again) == "text"
    assert old.key_id == SECOND


def test_digests_need_the_key_and_tell_texts_apart() -> None:
    for first, second in itertools.product(["a", "b", "", "A"], repeat=2):
        assert (vault().digest(first) == vault(SECOND).digest(second)) == (first == second)
    assert SealingVault({FIRST: KEYS[FIRST]}, bytes([1] * 32)).digest("a") != vault().digest("a")
    assert PLAIN.digest("a") == "a"
