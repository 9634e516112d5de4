"""Which models are served, as the setting `model` names them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hippovault_chassis.errors import ServiceError
from hippovault_embedding import remote_model
from hippovault_embedding.model import PACKAGED
from hippovault_embedding.remote_model import RemoteModel

FORMS = f"{PACKAGED}, a folder such as ./model, the URL of a server as in {remote_model.FORM}, or NAME= before one"

NAMED = re.compile(r"(?:(?P<name>[^=:/\\]*)=)?(?P<target>.*)", re.DOTALL)
"""A URL has "=" only after ":" and "/"; a folder with "=" in its name can be written ./so."""


@dataclass(frozen=True)
class PackagedModel:
    """The model that is installed with this service."""

    name: str


@dataclass(frozen=True)
class FolderModel:
    """A model of the user's."""

    name: str
    folder: Path
    """Absolute; it need not be there yet."""


Reference = PackagedModel | FolderModel | RemoteModel


def parse_all(texts: Sequence[str]) -> list[Reference]:
    """Returns what each reference names, in order; the packaged model for none.

    Raises:
        ServiceError: INVALID_ARGUMENT, one is wrong or two have the same name.
    """
    references = [parse(text) for text in texts] or [PackagedModel(PACKAGED)]
    names = [reference.name for reference in references]
    for name in names:
        if names.count(name) > 1:
            raise _invalid(f"two models are called {name!r}; give one another name, as in NAME={name}")
    return references


def parse(text: str) -> Reference:
    """Returns what one reference names.

    Raises:
        ServiceError: INVALID_ARGUMENT, it names nothing.
    """
    match = NAMED.fullmatch(text.strip())
    name, target = (match["name"], match["target"]) if match else (None, "")
    if target == PACKAGED:
        return PackagedModel(_name(name, target))
    if remote_model.is_url(target):
        remote = remote_model.parse(target)
        return replace(remote, name=_name(name, remote.name))
    # A bare word is more often a misspelt name than a folder.
    is_path = "/" in target or "\\" in target or target in {".", ".."}
    if not is_path or "://" in target or not target.isprintable():
        raise _invalid(f"{text!r} is not a model; expected {FORMS}")
    folder = Path(target).expanduser().absolute()
    return FolderModel(_name(name, folder.resolve().name), folder)


def _name(given: str | None, default: str) -> str:
    name = default if given is None else given.strip()
    if not name or not name.isprintable():
        raise _invalid(f"a model needs a name of printable characters, is {name!r}")
    return name


def _invalid(problem: str) -> ServiceError:
    return ServiceError.invalid("model", problem)
