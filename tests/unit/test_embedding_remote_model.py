"""How a reference names a model of a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hippovault_chassis.errors import ServiceError
from hippovault_embedding.references import parse
from hippovault_embedding.remote_model import RemoteModel


def test_a_url_names_server_and_model() -> None:
    assert parse("https://api.example.org/v1/?model=small") == RemoteModel(
        name="small", server="https://api.example.org/v1", model="small"
    )


def test_everything_can_be_said() -> None:
    reference = (
        "ours=https://api.example.org:8443/v1?model=org%2Flarge&dimensions=512&key_variable=THE_KEY&window_characters=2000"
        "&query_prefix=query%3A%20&document_prefix=passage%3A+"
    )
    assert parse(reference) == RemoteModel(
        name="ours",
        server="https://api.example.org:8443/v1",
        model="org/large",
        dimensions=512,
        key_variable="THE_KEY",
        window_characters=2000,
        query_prefix="query: ",
        document_prefix="passage: ",
    )


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080"])
def test_loopback_needs_no_tls(host: str) -> None:
    model = parse(f"http://{host}/v1?model=small")
    assert isinstance(model, RemoteModel)
    assert model.server == f"http://{host}/v1"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://api.example.org/v1?model=small", "must be https"),
        ("http://192.168.0.1/v1?model=small", "must be https"),
        ("http://localhost.example.org/v1?model=small", "must be https"),
        ("https://api.example.org/v1", "names no model"),
        ("https://api.example.org/v1?model=", "names no model"),
        ("https://api.example.org/v1?model", "malformed"),
        ("https://api.example.org/v1?model=a&model=b", "each once"),
        ("https://api.example.org/v1?model=small&api_key=sk-secret", "nothing else"),
        ("https://sk-secret@api.example.org/v1?model=small", "neither a user"),
        ("https://user:sk-secret@api.example.org/v1?model=small", "neither a user"),
        ("https://api.example.org/v1?model=small#sk-secret", "nor a fragment"),
        ("https://api.example.org/v1?model=small&key_variable=sk-secret", "upper-case letters"),
        ("https://api.example.org/v1?model=small&key_variable=", "upper-case letters"),
        ("https:///v1?model=small", "no host"),
        ("https://api.example.org:0/v1?model=small", "port 0"),
        ("https://api.example.org:99999/v1?model=small", "malformed"),
        ("https://[::1/v1?model=small", "malformed"),
        *(
            (f"https://api.example.org/v1?model=small&dimensions={bad}", "1 to")
            for bad in ("0", "-1", "x", "", "99999")
        ),
        *(
            (f"https://api.example.org/v1?model=small&query_prefix=12345&window_characters={bad}", "from 105 to")
            for bad in ("0", "104", "x", "", "1000001")
        ),
    ],
)
def test_what_is_wrong_is_told_without_quoting_it(url: str, problem: str) -> None:
    with pytest.raises(ServiceError) as caught:
        parse(url)
    assert caught.value.field == "model"
    assert problem in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    "change",
    [
        {"server": "https://other.example.org/v1"},
        {"model": "large"},
        {"dimensions": 256},
        {"window_characters": 2000},
        {"query_prefix": "query: "},
        {"document_prefix": "query: "},
    ],
)
def test_what_shapes_the_vectors_changes_the_revision(change: dict[str, Any]) -> None:
    model = RemoteModel(name="small", server="https://api.example.org/v1", model="small")
    assert replace(model, **change).revision != model.revision
    assert replace(model, name="mine", key_variable="OTHER").revision == model.revision
