"""A model that another server computes: how a reference names it, and its identity."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlsplit

from hippovault_chassis.addresses import is_loopback
from hippovault_chassis.errors import ServiceError
from hippovault_embedding.model import ModelError

VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
"""Upper case alone, so that a key given in its place is noticed and not quoted as the name of a variable."""
PARAMETERS = ("model", "dimensions", "key_variable", "window_characters", "query_prefix", "document_prefix")
MAX_DIMENSIONS = 16_384
MAX_WINDOW = 1_000_000
LEAST_WINDOW = 100
"""Characters of the text itself, so that each window says something."""
FORM = (
    "https://host/v1?model=MODEL[&dimensions=512][&key_variable=NAME][&window_characters=2000]"
    "[&query_prefix=…][&document_prefix=…]"
)


@dataclass(frozen=True, kw_only=True)
class RemoteModel:
    """A model behind `POST {server}/embeddings`, as OpenAI's API has it."""

    name: str
    server: str
    """Base URL, without a slash at its end and without secrets."""
    model: str
    """What the server calls it."""
    dimensions: int = 0
    """That are asked for; 0 leaves it to the model."""
    key_variable: str = ""
    """The environment variable that has the key; empty when the server wants none."""
    window_characters: int = 0
    """Of one text, prefix included; 0 leaves to the server what is too long for the model: it cuts or refuses it."""
    query_prefix: str = ""
    document_prefix: str = ""

    @property
    def revision(self) -> str:
        """The identity of its vectors, 16 hexadecimal digits, as far as it can be known from here."""
        prefixes = self.query_prefix, self.document_prefix
        shaping = [self.server, self.model, self.dimensions, self.window_characters, *prefixes]
        return hashlib.sha256(json.dumps(shaping).encode()).hexdigest()[:16]

    def key(self) -> str:
        """Returns the key; empty when the server wants none.

        Raises:
            ModelError: The variable is not set, or has what no HTTP header may have.
        """
        if not self.key_variable:
            return ""
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            raise ModelError(f"the environment variable {self.key_variable}, which must have the key, is not set")
        if not (key.isascii() and key.isprintable()):
            raise ModelError(f"the environment variable {self.key_variable} has characters that no key may have")
        return key


def is_url(reference: str) -> bool:
    """Tells whether a reference is meant to name a model of a server."""
    return reference.lower().startswith(("http://", "https://"))


def parse(reference: str) -> RemoteModel:
    """Returns the model that a URL names; it is called what the server calls it.

    No error quotes the URL: somebody may have put a key into it.

    Args:
        reference: See FORM; values are percent-encoded.

    Raises:
        ServiceError: INVALID_ARGUMENT, it is not of that form.
    """
    try:
        url = urlsplit(reference)
        server = _server(url)
        values = parse_qsl(url.query, keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise _invalid("has a malformed URL") from None
    given = dict(values)
    if len(given) < len(values) or not given.keys() <= set(PARAMETERS):
        raise _invalid(f"may have {', '.join(PARAMETERS)} after its `?`, each once, and nothing else")
    if not given.get("model"):
        raise _invalid("names no model; the server must be told one")
    prefixes = [given.get(name, "") for name in ("query_prefix", "document_prefix")]
    return RemoteModel(
        name=given["model"],
        server=server,
        model=given["model"],
        dimensions=_number(given, "dimensions", 1, MAX_DIMENSIONS),
        key_variable=_variable(given.get("key_variable")),
        window_characters=_number(given, "window_characters", LEAST_WINDOW + max(map(len, prefixes)), MAX_WINDOW),
        query_prefix=prefixes[0],
        document_prefix=prefixes[1],
    )


def _server(url: SplitResult) -> str:
    """Returns the base URL; ValueError when its port is none."""
    if not url.hostname or (url.port is not None and not url.port):
        raise _invalid("has no host, or port 0, in its URL")
    if url.username is not None or url.password is not None or url.fragment:
        raise _invalid("must have neither a user nor a fragment in its URL; a key belongs into an environment variable")
    if url.scheme == "http" and not is_loopback(url.hostname):
        raise _invalid("must be https: texts and key would cross the network in the clear; http is for loopback only")
    return f"{url.scheme}://{url.netloc}{url.path.rstrip('/')}"


def _number(given: Mapping[str, str], name: str, least: int, most: int) -> int:
    """Returns a number that may be given; 0 where it is not."""
    text = given.get(name)
    if text is None:
        return 0
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not digits or not least <= int(text) <= most:
        raise _invalid(f"must have {name} from {least} to {most}")
    return int(text)


def _variable(name: str | None) -> str:
    if name is not None and not VARIABLE.fullmatch(name):
        raise _invalid("must name an environment variable as key_variable: upper-case letters, digits and `_`")
    return name or ""


def _invalid(problem: str) -> ServiceError:
    return ServiceError.invalid("model", f"a reference {problem}; its form is {FORM}")
