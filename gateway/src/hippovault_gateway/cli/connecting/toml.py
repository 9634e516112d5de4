"""TOML, edited in place: comments and order stay."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from hippovault_gateway.cli.connecting.form import TOO_MANY_DIGITS, FormError


class Toml:
    """The form."""

    name = "TOML"
    empty = ""

    def load(self, text: str) -> dict[str, Any]:
        """Returns the members."""
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise FormError(str(error)) from None
        except ValueError:
            raise FormError(TOO_MANY_DIGITS) from None
        except RecursionError:
            raise FormError("it is nested too deeply") from None

    def with_member(self, text: str, section: str, name: str, value: dict[str, Any]) -> str:
        """Returns the file in which the table `section`, made where it is not there, has this member."""
        with _edited(text) as document:
            if section not in document:
                document[section] = tomlkit.table(is_super_table=True)
            servers: Any = document[section]
            if name not in servers:
                servers[name] = _inline({}) if isinstance(servers, InlineTable) else tomlkit.table()
            server = servers[name]
            for member in set(server) - set(value):
                del server[member]
            for member, given in value.items():
                if server.get(member) != given:
                    server[member] = _inline(given) if isinstance(given, dict) else given
            return tomlkit.dumps(document)

    def without_member(self, text: str, section: str, name: str) -> str:
        """Returns the file in which the table `section` lacks this member, which it had."""
        with _edited(text) as document:
            servers: Any = document[section]
            del servers[name]
            return tomlkit.dumps(document)


@contextmanager
def _edited(text: str) -> Iterator[TOMLDocument]:
    """Yields the document.

    Raises:
        FormError: The editor cannot do what is done with it within the context.
    """
    try:
        yield tomlkit.parse(text)
    except (TOMLKitError, TypeError, ValueError):
        raise FormError("it is written in a way that cannot be edited surely") from None


def _inline(value: dict[str, Any]) -> Any:
    table = tomlkit.inline_table()
    table.update(value)
    return table
