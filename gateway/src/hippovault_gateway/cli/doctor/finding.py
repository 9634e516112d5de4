"""What a check found."""

from __future__ import annotations

from typing import Literal

from hippovault_gateway.documents import Document


class Finding(Document):
    """One line of the answer."""

    check: str = ""
    state: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str = ""
    """What to do; empty where all is well."""


def ok(detail: str) -> Finding:
    """Returns that all is well."""
    return Finding(state="ok", detail=detail)


def warn(detail: str, remedy: str) -> Finding:
    """Returns what may be meant, or may do harm one day."""
    return Finding(state="warn", detail=detail, remedy=remedy)


def fail(detail: str, remedy: str) -> Finding:
    """Returns what is wrong."""
    return Finding(state="fail", detail=detail, remedy=remedy)
