"""Errors as they cross the wire."""

from __future__ import annotations

import pytest

from hippovault_chassis.errors import ServiceError

SOFT_LIMIT = 8192
"""Bytes of metadata up to which gRPC takes a failure's for sure."""


@pytest.mark.parametrize("character", ["a", "é", "模", "🦛", "\udcff", "\x00"])
def test_a_failure_of_any_length_can_be_sent(character: str) -> None:
    errors = [ServiceError.invalid(f"texts[{index}]", character * 100_000) for index in range(300)]
    for error in (*errors[:1], ServiceError.invalid_fields(errors)):
        encoded = len(error.to_status().SerializeToString()) * 4 / 3
        escaped = sum(1 if 0x20 <= byte < 0x7F else 3 for byte in error.message.encode())
        assert encoded + escaped < SOFT_LIMIT
        assert error.message.startswith("texts[0]: ")
        back = ServiceError.from_status(error.to_status())
        assert (back.code, back.reason, back.message) == (error.code, error.reason, error.message)


def test_what_fits_is_told_whole() -> None:
    problem = "é" * 400
    error = ServiceError.invalid_fields([ServiceError.invalid("a", problem), ServiceError.invalid("b", problem)])
    assert error.message == f"a: {problem} (1 more fields are wrong)"
    assert len(error.to_status().details[1].value) > 1600
