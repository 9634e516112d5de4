"""`hippovault completion`: real shells complete the commands, their options and their values."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hippovault_gateway.cli.app import COMMANDS
from support.command import hippovault
from support.processes import environment

ASK_BASH = """
source "$1"; shift
for line in "$@"; do
    read -ra COMP_WORDS <<< "$line"
    [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _hippovault
    echo "${COMPREPLY[*]}"
done
"""
ASKED = {
    "hippovault rem": "remember",
    "hippovault recall query --expl": "--explain",
    "hippovault connect cu": "cursor",
    "hippovault completion ": "bash zsh fish",
    "hippovault mcp --tools s": "shodh",
    "hippovault list --tags-": "--tags-all",
    "hippovault recall query --mode ke": "keyword",
}


@pytest.fixture(scope="module")
def scripts(module_home: Path) -> dict[str, Path]:
    """The scripts by shell, in files."""
    files = {}
    for shell in ("bash", "zsh", "fish"):
        files[shell] = module_home.parent / f"completion.{shell}"
        files[shell].write_bytes(hippovault(module_home, "completion", shell).stdout)
    return files


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_has_every_command_and_its_shell_takes_it(scripts: dict[str, Path], shell: str) -> None:
    text = scripts[shell].read_text()
    assert [command for command in COMMANDS if command not in text] == []
    if program := shutil.which(shell):
        subprocess.run([program, "-n", str(scripts[shell])], check=True, capture_output=True)


def test_bash_completes(scripts: dict[str, Path], home: Path) -> None:
    command = ["bash", "--norc", "-c", ASK_BASH, "bash", str(scripts["bash"]), *ASKED]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # Some values the command itself tells.
    ended = subprocess.run(command, env=environment(home, {"PATH": path}), capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == list(ASKED.values())


def test_it_is_installed_where_the_shell_looks(home: Path, scripts: dict[str, Path]) -> None:
    ended = hippovault(home, "completion", "bash", "--install", "--json")
    assert ended.returncode == 0, ended.stderr
    file = Path(json.loads(ended.stdout)["file"])
    assert file.is_relative_to(home.parent)
    assert file.read_text().rstrip() == scripts["bash"].read_text().rstrip()


def test_what_zsh_needs_is_told(home: Path) -> None:
    assert b"compinit" in hippovault(home, "completion", "zsh", "--install").stdout


def test_an_unknown_shell_is_refused(home: Path) -> None:
    ended = hippovault(home, "completion", "cmd")
    assert (ended.returncode, ended.stdout) == (2, b"")
