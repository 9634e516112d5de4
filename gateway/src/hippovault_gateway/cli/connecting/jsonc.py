"""JSON with comments and trailing commas, as editors take it: what is not edited stays as it is, byte by byte.

The standard parser reads it, from a copy in which spaces stand for comments and trailing commas, so that places in the
copy are places in the file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from hippovault_gateway.cli.connecting.form import TOO_MANY_DIGITS, FormError

INDENT = "  "
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENTS = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMAS = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class _Member:
    name: str
    start: int
    """Of its name."""
    value: int
    """Where its value begins."""
    end: int
    """Where its value has ended."""


@dataclass(frozen=True)
class _Object:
    """Where an object stands in a file."""

    start: int
    end: int
    """Of its closing brace."""
    members: list[_Member]

    @classmethod
    def at(cls, plain: str, start: int) -> _Object:
        """Reads the object whose brace is at `start`."""
        members: list[_Member] = []
        place = _after_space(plain, start + 1)
        while plain[place] != "}":
            name, end = _DECODER.raw_decode(plain, place)
            value = _after_space(plain, _after_space(plain, end) + 1)
            _, end = _DECODER.raw_decode(plain, value)
            members.append(_Member(name, place, value, end))
            place = _after_space(plain, end)
            if plain[place] == ",":
                place = _after_space(plain, place + 1)
        return cls(start, place, members)

    def member(self, name: str) -> _Member | None:
        """Returns the member; of several with the name the last one, as every parser does."""
        return next((member for member in reversed(self.members) if member.name == name), None)


class Jsonc:
    """The form."""

    name = "JSON"
    empty = "{}\n"

    def load(self, text: str) -> dict[str, Any]:
        """Returns the members."""
        try:
            value = json.loads(_plain(text))
        except json.JSONDecodeError as error:
            raise FormError(f"{error.msg}, line {error.lineno}, column {error.colno}") from None
        except ValueError:
            raise FormError(TOO_MANY_DIGITS) from None
        except RecursionError:
            raise FormError("it is nested too deeply") from None
        if not isinstance(value, dict):
            raise FormError("the whole of it must be an object")
        return value

    def with_member(self, text: str, section: str, name: str, value: dict[str, Any]) -> str:
        """Returns the file in which the object `section`, made where it is not there, has this member."""
        plain = _plain(text)
        root = _Object.at(plain, _after_space(plain, 0))
        servers = root.member(section)
        if servers is None or plain[servers.value] != "{":
            return _put(text, root, section, {name: value})
        return _put(text, _Object.at(plain, servers.value), name, value)

    def without_member(self, text: str, section: str, name: str) -> str:
        """Returns the file in which the object `section` lacks this member, which it had."""
        plain = _plain(text)
        servers = _Object.at(plain, _after_space(plain, 0)).member(section)
        members = _Object.at(plain, servers.value).members if servers else []
        place = max(index for index, member in enumerate(members) if member.name == name)
        member, follows = members[place], _comma(_without_comments(text), members[place].end)
        text = _cut(text, member.start, member.end if follows is None else follows + 1)
        before = _comma(plain, members[place - 1].end) if place and follows is None else None
        return text if before is None else text[:before] + text[before + 1 :]


def _put(text: str, into: _Object, name: str, value: dict[str, Any]) -> str:
    """Returns the text with a member of an object set; a new one comes last."""
    there, line_break = into.member(name), "\r\n" if "\r\n" in text else "\n"
    outer = _indent(text, into.start)
    inner = _indent(text, into.members[0].start) if into.members else ""
    unit = inner.removeprefix(outer) or _unit(text)
    inner = outer + unit
    shown = json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", line_break + inner)
    if there:
        return text[: there.value] + shown + text[there.end :]
    last = into.members[-1].end if into.members else None
    ends = None if last is None else _comma(_without_comments(text), last)
    body = f"{line_break}{inner}{json.dumps(name)}: {shown}{'' if ends is None else ','}"
    place = len(text[: into.end].rstrip())
    space = text[place : into.end]
    rest = (space if "\n" in space else line_break + outer) + text[into.end :]
    if last is None or ends is not None:
        return text[:place] + body + rest
    return text[:last] + "," + text[last:place] + body + rest


def _plain(text: str) -> str:
    """Returns the text as strict JSON, every character at its place."""
    return _TRAILING_COMMAS.sub(_blank, _without_comments(text))


def _without_comments(text: str) -> str:
    return _COMMENTS.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else re.sub(r"\S", " ", found[0])


def _after_space(text: str, start: int) -> int:
    found = _SPACE.match(text, start)
    return found.end() if found else start


def _comma(text: str, start: int) -> int | None:
    """Returns where the comma is that comes next; None when something else does."""
    place = _after_space(text, start)
    return place if text[place] == "," else None


def _cut(text: str, start: int, end: int) -> str:
    """Returns the text without a part, and without the lines that would be empty then."""
    line = text.rfind("\n", 0, start) + 1
    rest = re.compile(r"[ \t]*\r?\n").match(text, end)
    return text[:line] + text[rest.end() :] if rest and not text[line:start].strip() else text[:start] + text[end:]


def _indent(text: str, place: int) -> str:
    """Returns the white space that the line of a place begins with."""
    line = text[text.rfind("\n", 0, place) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    """Returns by how much the first line that is indented is."""
    found = re.compile(r"^[ \t]+(?=\S)", re.MULTILINE).search(_without_comments(text))
    return found[0] if found else INDENT
