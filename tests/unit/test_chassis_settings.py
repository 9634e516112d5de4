"""Settings of a process and of the command line, as far as its configuration file is concerned."""

from __future__ import annotations

from pathlib import Path

import pytest

from hippovault_chassis import settings
from hippovault_embedding.settings import EmbeddingSettings
from hippovault_gateway.cli.app import COMMANDS, run
from hippovault_gateway.settings import GatewaySettings
from hippovault_storage.settings import StorageSettings

PROCESSES: dict[str, type[settings.ProcessSettings]] = {
    "embedding": EmbeddingSettings,
    "gateway": GatewaySettings,
    "storage": StorageSettings,
}
MISSPELT = [
    "[embeding]\nthreads = 1\n",
    "[Storage]\n",
    "[[gateways]]\n",
    "[rotate_key]\n",
    "threads = 1\n",
    "[gateway]\n[embeding]\n",
]


@pytest.fixture
def file(home: Path) -> Path:
    home.mkdir()
    return home / "hippovault.toml"


@pytest.mark.parametrize("section", PROCESSES)
@pytest.mark.parametrize("text", MISSPELT)
def test_a_table_that_no_process_has_is_refused_with_those_there_are(
    file: Path, section: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    with pytest.raises(SystemExit) as ended:
        settings.load(PROCESSES[section], section, ["--home", str(file.parent)])
    assert ended.value.code
    check_told(capsys.readouterr().err, file)


@pytest.mark.parametrize("text", MISSPELT)
def test_commands_refuse_it_too(file: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(text)
    assert run(["list", "--home", str(file.parent)]) == 2
    check_told(capsys.readouterr().err, file)


def test_in_a_home_of_links_in_a_circle_no_file_is_found(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.symlink_to(home)
    for section, process in PROCESSES.items():
        assert settings.load(process, section, ["--home", str(home)]).layout.root == home
    assert run(["status", "--home", str(home)]) == 1
    assert str(home) in capsys.readouterr().err


def check_told(printed: str, file: Path) -> None:
    told = "".join(printed.replace("\u2502", "").split())  # However lines are broken.
    assert f"{file}:" in told
    assert "isnotablethatisknown;" in told
    assert "itstablesareembedding,gateway,storage," in told


@pytest.mark.parametrize("section", PROCESSES)
def test_tables_of_others_are_left_to_them(file: Path, section: str) -> None:
    tables = [*PROCESSES, *COMMANDS]
    file.write_text("".join(f'[{table}]\nmeant-for = "{table}"\n' for table in tables if table != section))
    assert settings.load(PROCESSES[section], section, ["--home", str(file.parent)]).home == file.parent


def test_every_command_may_have_a_table() -> None:
    assert tuple(COMMANDS) == settings.COMMANDS
