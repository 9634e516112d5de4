"""What connecting changes in a client's configuration, as text."""

from __future__ import annotations

from typing import Any

from hippovault_chassis.default_home import HOME_VARIABLE
from hippovault_gateway.cli.connecting.form import Form, FormError


def connected(form: Form, text: str, section: str, name: str, server: dict[str, Any]) -> str:
    """Returns the file with the server in it; members that somebody gave it besides stay.

    Raises:
        FormError: The file is not of its form, or cannot be edited.
    """
    text = text if text.strip() else form.empty
    before = form.load(text)
    servers = _servers(before, section)
    wanted = _merged(servers.get(name), server)
    if servers.get(name) == wanted:
        return text
    after = form.with_member(text, section, name, wanted)
    return _checked(form, after, {**before, section: {**servers, name: wanted}})


def disconnected(form: Form, text: str, section: str, name: str) -> str:
    """Returns the file without the server.

    Raises:
        FormError: The file is not of its form, or cannot be edited.
    """
    before = form.load(text if text.strip() else form.empty)
    servers = _servers(before, section)
    if name not in servers:
        return text
    after = form.without_member(text, section, name)
    return _checked(form, after, {**before, section: {key: one for key, one in servers.items() if key != name}})


def _servers(members: dict[str, Any], section: str) -> dict[str, Any]:
    servers = members.get(section)
    if servers is not None and not isinstance(servers, dict):
        raise FormError(f"its member {section} must be an object")
    return servers or {}


def _merged(stored: Any, server: dict[str, Any]) -> dict[str, Any]:
    """Returns the server with what is stored of it besides; the memory's home is what the server says alone."""
    if not isinstance(stored, dict):
        return server
    variables = stored.get("env")
    kept = {key: one for key, one in variables.items() if key != HOME_VARIABLE} if isinstance(variables, dict) else {}
    merged = {**stored, **server, "env": {**kept, **server.get("env", {})}}
    if not merged["env"]:
        del merged["env"]
    return merged


def _checked(form: Form, text: str, expected: dict[str, Any]) -> str:
    """Returns the text, which must say what is expected: a file of somebody else's is edited surely or not at all."""
    if _filled(form.load(text)) != _filled(expected):
        raise FormError("it is written in a way that cannot be edited surely")
    return text


def _filled(members: dict[str, Any]) -> dict[str, Any]:
    """Returns the members that have anything: what is left of a section without servers is a matter of form."""
    return {key: one for key, one in members.items() if one != {}}
