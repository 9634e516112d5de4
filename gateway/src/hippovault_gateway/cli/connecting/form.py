"""What the forms of configuration files have in common."""

from __future__ import annotations

from typing import Any, Protocol

TOO_MANY_DIGITS = "a number in it has too many digits"
"""Python reads integers of thousands of digits by request alone."""


class FormError(Exception):
    """A file is not of its form; the message tells why, and quotes nothing of it."""


class Form(Protocol):
    """A form of configuration files, in which single members are set and removed while the rest stays as it is."""

    name: str
    """For people."""
    empty: str
    """A file that has nothing."""

    def load(self, text: str) -> dict[str, Any]:
        """Returns the members.

        Raises:
            FormError: It is not of this form.
        """
        ...

    def with_member(self, text: str, section: str, name: str, value: dict[str, Any]) -> str:
        """Returns the file in which the object `section`, made where it is not there, has this member."""
        ...

    def without_member(self, text: str, section: str, name: str) -> str:
        """Returns the file in which the object `section` lacks this member, which it had."""
        ...
