"""`hippovault doctor`: what is wrong with a memory, each fault made and found."""

from __future__ import annotations

import base64
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hippovault_chassis.locks import lock_file
from hippovault_gateway.cli.doctor import machine
from hippovault_gateway.cli.doctor.command import CHECKS
from hippovault_gateway.cli.doctor.finding import Finding
from hippovault_gateway.cli.doctor.patient import Patient
from hippovault_gateway.cli.options import ClientOptions
from support.command import Run, answer, hippovault, in_process, in_terminal
from support.processes import environment
from support.stack import Stack, running
from support.storage import database, opened, serving

BEHIND = ["model", "store", "pending", "hints", "http", "stdio"]
"""Checks that need a memory that answers."""


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs doctor within this process, over a home of the test's own; returns exit code and findings by check."""
    one = in_process(environment(home), monkeypatch, capsys)

    def findings(*arguments: str) -> tuple[int, dict[str, Any]]:
        code, document = one("doctor", *arguments)
        assert document["healthy"] is not bool(code)
        return code, {finding["check"]: finding for finding in document["checks"]}

    return findings


@pytest.fixture
def made(home: Path) -> Path:
    """A home that has its directories and nothing else."""
    for name in ("data", "run", "logs"):
        (home / name).mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    return home


def states(findings: dict[str, Any]) -> dict[str, str]:
    return {name: finding["state"] for name, finding in findings.items() if finding["state"] != "ok"}


def test_a_sound_memory_is_well(stack: Stack) -> None:
    code, shown = in_terminal(stack.home, "doctor", COLUMNS="200")
    assert code == 0, shown
    assert f"{len(CHECKS)} checks: 0 failed, 0 warnings" in shown
    told = {finding["check"]: finding for finding in answer(stack.home, "doctor")["checks"]}
    assert list(told) == list(CHECKS)
    assert "384 dimensions" in told["model"]["detail"]
    assert told["hints"]["detail"] == "accepted"
    assert told["http"]["detail"] == stack.mcp_http_url
    assert "answers initialize" in told["stdio"]["detail"]
    assert not any(finding["remedy"] for finding in told.values())


def test_where_there_is_no_memory_nothing_is_made(run: Run, home: Path) -> None:
    code, found = run()
    assert code == 1
    assert states(found) == {"home": "warn", "processes": "fail", **dict.fromkeys(BEHIND, "warn")}
    assert found["processes"]["remedy"] == f"start it: hippovault up --detach --home {home}"
    assert not home.exists()


def looked(check: Callable[[Patient], Finding], home: Path) -> Finding:
    """Returns what one check finds; none of these asks the memory."""
    return check(Patient(ClientOptions(home=home)))


def test_what_others_may_read_is_told_with_the_command_that_ends_it(made: Path) -> None:
    file = made / "data" / "memories.db"
    file.touch()
    file.chmod(0o644)  # Whatever the umask.
    found = looked(machine.home, made)
    assert (found.state, found.detail) == ("fail", f"others have rights to {file}")
    assert os.system(found.remedy) == 0  # noqa: S605  # It is what people would do.
    assert looked(machine.home, made).state == "ok"


def test_a_wrong_setting_is_told_by_its_name(run: Run, made: Path) -> None:
    (made / "hippovault.toml").write_text("[gateway]\nbogus = 1\n")
    _, found = run()
    assert found["settings"]["state"] == "fail"
    assert "bogus" in found["settings"]["detail"]
    assert list(found) == list(CHECKS)
    assert [name for name, state in states(found).items() if state == "fail"] == ["settings"]
    (made / "hippovault.toml").write_text("[storage]\ndimensions = 0\n")
    _, found = run()
    assert (found["settings"]["state"], found["key"]["state"]) == ("ok", "fail")
    assert "dimensions" in found["key"]["detail"]


def test_what_a_restore_kept_is_told(made: Path) -> None:
    kept = made / "data" / "memories.db.replaced-20260101T000000Z"
    kept.touch(0o600)
    found = looked(machine.leftovers, made)
    assert (found.state, found.remedy) == ("warn", f"once they are not needed: rm {kept}")


def test_processes_that_outlive_their_supervisor_are_told(made: Path) -> None:
    with lock_file(made / "run" / "children.lock", "a test"):
        found = looked(machine.leftovers, made)
    assert found.state == "fail"
    assert str(os.getpid()) in found.detail
    with lock_file(made / "data" / "memories.lock", "a test"):
        found = looked(machine.leftovers, made)
    assert (found.state, str(os.getpid()) in found.detail) == ("warn", True)


def test_a_clock_that_went_back_is_told(made: Path) -> None:
    file = made / "data" / "memories.db"
    file.touch(0o600)
    assert looked(machine.clock, made).state == "ok"
    os.utime(file, (time.time() + 3600, time.time() + 3600))
    assert looked(machine.clock, made).state == "fail"


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize(("free", "state"), [(1 << 20, "fail"), (80 << 20, "warn"), (1 << 40, "ok")])
def test_a_disk_that_is_nearly_full_is_told(made: Path, monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    with (made / "data" / "memories.db").open("wb") as file:
        file.truncate(100 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(1 << 41, 0, free))
    assert looked(machine.disk, made).state == state


def test_a_release_that_is_mixed_is_told(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "version", lambda name: "2" if name == "hippovault-storage" else "1")
    found = looked(machine.versions, made)
    assert (found.state, "storage 2" in found.detail) == ("fail", True)


def key(home: Path) -> Path:
    file = home.parent / f"{os.urandom(4).hex()}.key"
    file.touch(0o600)
    file.write_bytes(base64.b64encode(os.urandom(32)))
    return file


def test_each_fault_of_a_key_is_told_before_the_next_start(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong, none = key(home), key(home), home / "none"
    encrypted = {"HIPPOVAULT_STORAGE_ENCRYPTION": "file", "HIPPOVAULT_STORAGE_KEY_FILE": str(right)}
    with serving(home, environment=encrypted):
        pass
    assert looked(machine.key, home).state == "fail"  # The store is encrypted, and no setting says so.
    monkeypatch.setenv("HIPPOVAULT_STORAGE_ENCRYPTION", "file")
    for file, state, told in ((right, "ok", "opens it"), (wrong, "fail", "needs the key"), (none, "fail", "be read")):
        monkeypatch.setenv("HIPPOVAULT_STORAGE_KEY_FILE", str(file))
        found = looked(machine.key, home)
        assert (found.state, told in found.detail) == (state, True), found
        assert not file.exists() or file.read_text() not in found.detail


@pytest.fixture(scope="module")
def sick(module_home: Path) -> Iterator[Stack]:
    """A memory of which processes are ended."""
    with running(module_home, {"HIPPOVAULT_GATEWAY_HTTP": "off"}) as stack:
        yield stack


def test_each_process_that_is_down_is_told(sick: Stack) -> None:
    def found() -> tuple[int, dict[str, Any]]:
        ended = hippovault(sick.home, "doctor", "--json", extra_environment={"HIPPOVAULT_HINTS_ENABLED": "1"})
        assert ended.stderr == b""
        return ended.returncode, {finding["check"]: finding for finding in json.loads(ended.stdout)["checks"]}

    answer(sick.home, "remember", "zebra")
    code, told = found()
    assert (code, states(told)) == (0, {"hints": "warn"})  # On here, and not where the memory was started.
    assert told["http"]["detail"] == "off, as it was told"
    sick.processes["embedding"].kill()
    code, told = found()
    assert (code, told["processes"]["state"], told["model"]["state"]) == (1, "fail", "fail")
    assert told["processes"]["detail"].startswith("embedding down: ")
    assert told["store"]["state"] == "ok"
    remembered = hippovault(sick.home, "remember", "Stored while the model is away.")
    assert b"stored without vectors" in remembered.stderr
    assert b"pending" in hippovault(sick.home, "list").stdout
    code, told = found()
    assert (told["pending"]["state"], told["pending"]["detail"][:17]) == ("warn", "1 of 2 memories w")
    sick.processes["storage"].kill()
    code, told = found()
    assert (code, told["store"]["state"], told["pending"]["state"]) == (1, "fail", "warn")
    with opened(database(sick.home)) as connection:
        connection.execute("DELETE FROM hippo_fts_data WHERE id > 10")  # All but its two records about itself.
    sick.restart("storage")
    code, told = found()
    assert (code, told["store"]["state"]) == (1, "fail")
    assert told["store"]["remedy"] == f"see all: hippovault verify --home {sick.home}"
    sick.processes["gateway"].kill()
    code, told = found()
    assert (code, told["processes"]["detail"], told["leftovers"]["state"]) == (1, "the memory is not running", "warn")
    assert [told[name]["state"] for name in BEHIND] == ["warn"] * len(BEHIND)
