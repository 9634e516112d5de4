"""Members that are set in and removed from files of other programs."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from hippovault_gateway.cli.connecting.clients import JSONC, TOML
from hippovault_gateway.cli.connecting.editing import connected, disconnected
from hippovault_gateway.cli.connecting.form import Form, FormError

SECTION, NAME = "mcpServers", "hippovault"
SERVER = {"command": "/opt/hippovault", "args": ["mcp"], "env": {"HIPPOVAULT_HOME": "/x"}}

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | names
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))
servers = st.dictionaries(names, st.dictionaries(names, values, max_size=3), max_size=3)
documents = st.dictionaries(names, values, max_size=4).flatmap(
    lambda members: st.one_of(st.just(members), servers.map(lambda one: {**members, SECTION: one}))
)
COMMENTS = ("", ' // a comment, with "quotes" and , } ]\n', " /* of\n several */ ")


def commented(text: str, comments: list[str], *, trailing: bool) -> str:
    """Puts comments between the tokens of a document that has no strings of more than letters."""
    lines = []
    for place, line in enumerate(text.split("\n")):
        closes = trailing and line[-1:] not in "{[,}]" and line.strip() != ""
        lines.append(line + ("," if closes else "") + comments[place % len(comments)])
    return "\n".join(lines)


@settings(max_examples=50)
@given(documents, st.sampled_from([None, 0, 2, 4, "\t"]))
def test_a_member_comes_and_goes_and_all_else_stays(members: dict[str, Any], indent: int | str | None) -> None:
    text = json.dumps(members, indent=indent, ensure_ascii=False)
    there = members.get(SECTION) or {}
    if NAME in there or not isinstance(there, dict):
        return
    after = connected(JSONC, text, SECTION, NAME, SERVER)
    assert json.loads(after) == {**members, SECTION: {**there, NAME: SERVER}}
    assert connected(JSONC, after, SECTION, NAME, SERVER) == after
    gone = json.loads(disconnected(JSONC, after, SECTION, NAME))
    assert gone == {**members, SECTION: there}


@settings(max_examples=50)
@given(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers() | st.just([1, 2]) | st.just({"d": "e"})),
    st.booleans(),
    st.lists(st.sampled_from(COMMENTS), min_size=1, max_size=4),
    st.booleans(),
)
def test_comments_stay(
    members: dict[str, Any],
    has_section: bool,  # noqa: FBT001  # Drawn by name.
    comments: list[str],
    trailing: bool,  # noqa: FBT001  # Same.
) -> None:
    if has_section:
        members = {**members, SECTION: {"other": {"command": "x"}}, "z": 1}
    text = commented(json.dumps(members, indent=2), comments, trailing=trailing)
    assert JSONC.load(text) == members
    after = connected(JSONC, text, SECTION, NAME, SERVER)
    assert JSONC.load(after) == {**members, SECTION: {**members.get(SECTION, {}), NAME: SERVER}}
    assert after.count("a comment") == text.count("a comment")
    gone = disconnected(JSONC, after, SECTION, NAME)
    assert JSONC.load(gone) == {**members, SECTION: members.get(SECTION, {})}
    assert gone.count("a comment") == text.count("a comment")


def test_it_is_written_as_the_file_is() -> None:
    text = '{\r\n\t"theme": "dark", // mine\r\n\t"mcpServers": {\r\n\t\t"a": {"command": "b"}\r\n\t}\r\n}\r\n'
    after = connected(JSONC, text, SECTION, NAME, {"command": "c", "args": ["mcp"]})
    assert after == (
        '{\r\n\t"theme": "dark", // mine\r\n\t"mcpServers": {\r\n\t\t"a": {"command": "b"},\r\n'
        '\t\t"hippovault": {\r\n\t\t\t"command": "c",\r\n\t\t\t"args": [\r\n\t\t\t\t"mcp"\r\n\t\t\t]\r\n\t\t}\r\n'
        "\t}\r\n}\r\n"
    )
    assert disconnected(JSONC, after, SECTION, NAME) == text


@pytest.mark.parametrize("form", [JSONC, TOML], ids=["json", "toml"])
def test_what_somebody_gave_the_server_besides_stays(form: Form) -> None:
    stored = {"command": "old", "args": ["x"], "disabled": False, "env": {"HIPPOVAULT_HOME": "/old", "LANG": "C"}}
    text = form.with_member(form.empty, SECTION, NAME, stored)
    after = form.load(connected(form, text, SECTION, NAME, {"command": "new", "args": ["mcp"]}))
    assert after[SECTION][NAME] == {"command": "new", "args": ["mcp"], "disabled": False, "env": {"LANG": "C"}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# mine\n",
        'model = "x" # mine\n\n[profiles.a]\nb = 1\n',
        '[mcp_servers.other]\ncommand = "x"\n\n[mcp_servers.other.env]\nA = "b" # mine\n\n[last]\nc = 1\n',
        'mcp_servers = { other = { command = "x" } }\n',
        '[mcp_servers]\nother.command = "x"\n',
        'mcp_servers.other.command = "x"\n',
        '[mcp_servers.other]\ncommand = "x"\n[middle]\na = 1\n[mcp_servers.third]\ncommand = "y"\n',
        "[a]\r\nb = 1\r\n",
    ],
)
def test_toml_keeps_what_is_there(text: str) -> None:
    members = tomllib.loads(text)
    there = members.get("mcp_servers", {})
    after = connected(TOML, text, "mcp_servers", NAME, SERVER)
    assert tomllib.loads(after) == {**members, "mcp_servers": {**there, NAME: SERVER}}
    assert after.count("# mine") == text.count("# mine")
    assert connected(TOML, after, "mcp_servers", NAME, SERVER) == after
    gone = tomllib.loads(disconnected(TOML, after, "mcp_servers", NAME))
    assert {name: one for name, one in gone.items() if one} == members
    assert tomlkit.parse(after)["mcp_servers"]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (JSONC, "{"),
        (JSONC, "[]"),
        (JSONC, "null"),
        (JSONC, '{"a": 1 /* never ends'),
        (JSONC, '{"a": "b'),
        (JSONC, "{'a': 1}"),
        (JSONC, '{"a": 1}}'),
        (JSONC, '{"mcpServers": []}'),
        (JSONC, '{"mcpServers": "x"}'),
        (JSONC, "[" * 100_000),
        (JSONC, f'{{"a": {"9" * 5_000}}}'),
        (TOML, "a ="),
        (TOML, "[a]\n[a]\n"),
        (TOML, f"a = {'9' * 5_000}\n"),
        (TOML, "mcpServers = 1\n"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else value.name,
)
def test_what_is_not_of_its_form_is_refused(form: Form, text: str) -> None:
    with pytest.raises(FormError):
        connected(form, text, SECTION, NAME, SERVER)
    with pytest.raises(FormError):
        disconnected(form, text, SECTION, NAME)


def test_a_name_twice_is_told_by_its_last_value() -> None:
    text = '{"mcpServers": {"hippovault": {"command": "1"}, "hippovault": {"command": "2", "x": 1}}}'
    assert JSONC.load(connected(JSONC, text, SECTION, NAME, {"command": "3"})) == {
        SECTION: {NAME: {"command": "3", "x": 1}}
    }
