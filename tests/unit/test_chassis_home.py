"""A home is made private; a directory that is somebody's own is left as it is, or refused."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from hippovault_chassis.default_home import default_home, given_home
from hippovault_chassis.errors import ServiceError
from hippovault_chassis.home import Home
from support.processes import environment

PARTS = ("data", "run", "logs")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def make(path: Path, permissions: int) -> Path:
    path.mkdir()
    path.chmod(permissions)
    return path


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def assert_private(root: Path) -> None:
    assert [mode(root / name) for name in PARTS] == [0o700] * 3


def test_a_new_home_is_private_and_so_are_its_files(home: Path) -> None:
    Home(home / "deep").create()
    assert mode(home / "deep") == mode(home) == 0o700
    assert_private(home / "deep")
    (home / "deep/data/file").touch()
    assert mode(home / "deep/data/file") == 0o600


@pytest.mark.parametrize("permissions", [0o755, 0o777])
def test_an_empty_directory_and_one_of_ours_become_private(home: Path, permissions: int) -> None:
    make(home, permissions)
    Home(home).create()
    assert mode(home) == 0o700
    home.chmod(permissions)
    make(home / "data/x", 0o700)
    (home / "logs").chmod(0o755)
    (home / "hippovault.toml").touch()
    Home(home).create()
    assert mode(home) == 0o700
    assert_private(home)


def test_a_directory_with_other_content_keeps_its_mode(home: Path) -> None:
    make(home, 0o755)
    (home / ".profile").touch()
    for _ in range(2):
        Home(home).create()
        assert mode(home) == 0o755
        assert_private(home)


@pytest.mark.parametrize("permissions", [0o775, 0o757, 0o1777])
def test_a_directory_with_other_content_that_others_may_write_to_is_refused(home: Path, permissions: int) -> None:
    make(home, permissions)
    (home / ".profile").touch()
    with pytest.raises(ServiceError, match=rf"^HIPPOVAULT_HOME: {home} .*mode {permissions:04o}") as caught:
        Home(home).create()
    assert caught.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert mode(home) == permissions
    assert [path.name for path in home.iterdir()] == [".profile"]


@pytest.mark.parametrize("module", ["hippovault_gateway", "hippovault_storage", "hippovault_embedding"])
def test_a_process_refuses_a_home_that_is_no_utf8(home: Path, module: str) -> None:
    command = [sys.executable, "-m", module, "--home", f"{home}\udcff"]
    ended = subprocess.run(command, env=environment(home), capture_output=True, text=True, check=False)
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False)
    assert f"HIPPOVAULT_HOME: '{home}\\udcff' must be UTF-8" in ended.stderr


def test_a_command_names_the_home_unless_it_is_the_default_one() -> None:
    assert Home(Path(default_home())).command("down") == "hippovault down"
    assert Home(Path("/a b")).command("up --detach") == "hippovault up --detach --home '/a b'"


def test_the_tests_themselves_reach_no_users_home() -> None:
    for path in (Path.home(), Path(default_home()), Path(given_home())):
        assert path.relative_to(tempfile.gettempdir()).parts[0].startswith("hv-")
