"""What the setting `model` may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from hippovault_chassis.errors import ServiceError
from hippovault_embedding.references import FolderModel, PackagedModel, Reference, parse, parse_all


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all-MiniLM-L6-v2", PackagedModel("all-MiniLM-L6-v2")),
        ("small=all-MiniLM-L6-v2", PackagedModel("small")),
        ("/models/e5", FolderModel("e5", Path("/models/e5"))),
        (" /models/e5/ ", FolderModel("e5", Path("/models/e5"))),
        ("german=/models/e5", FolderModel("german", Path("/models/e5"))),
        ("with space=/my models/e 5", FolderModel("with space", Path("/my models/e 5"))),
        ("a=/models/b=c", FolderModel("a", Path("/models/b=c"))),
        ("/models/b=c", FolderModel("b=c", Path("/models/b=c"))),
    ],
)
def test_a_reference(text: str, expected: Reference) -> None:
    assert parse(text) == expected


def test_a_relative_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse("./e5") == FolderModel("e5", tmp_path / "e5")
    assert parse(".") == FolderModel(tmp_path.resolve().name, tmp_path)


def test_a_home_is_expanded() -> None:
    assert parse("~/e5") == FolderModel("e5", Path.home() / "e5")


@pytest.mark.parametrize(
    "text",
    ["", " ", "all-minilm-l6-v2", "e5", "=/models/e5", "a\nb=/models/e5", "/", "name=", "x=/a\udcff", "ftp://host/v1"],
)
def test_what_names_nothing_is_refused(text: str) -> None:
    with pytest.raises(ServiceError) as caught:
        parse(text)
    assert caught.value.field == "model"


def test_no_reference_means_the_packaged_model() -> None:
    assert parse_all([]) == [PackagedModel("all-MiniLM-L6-v2")]


@pytest.mark.parametrize("texts", [["/a/e5", "/b/e5"], ["x=/a", "x=/b"], ["all-MiniLM-L6-v2"] * 2])
def test_two_models_of_one_name_are_refused(texts: list[str]) -> None:
    with pytest.raises(ServiceError, match="model: two models are called"):
        parse_all(texts)
