"""The commands over a whole store: verify, backup, restore, and those that take the store for themselves."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path

import pytest

from hippovault_chassis.home import Home
from hippovault_chassis.locks import lock_file
from hippovault_gateway.local import state
from hippovault_gateway.local.state import lock_path
from support import storage
from support.command import Run, answer, hippovault, in_process, in_terminal
from support.processes import environment
from support.stack import Stack
from support.storage import Store, connected, database, opened, rows, serving


@pytest.fixture
def run(stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command within this process; returns exit code and JSON document."""
    return in_process(environment(stack.home), monkeypatch, capsys)


def test_a_sound_store_is_verified(run: Run, stack: Stack) -> None:
    code, document = run("verify")
    assert (code, document["wrong"]) == (0, 0)
    assert "integrity" in [check["check"] for check in document["checks"]]
    assert all(check["problems"] == [] for check in document["checks"])
    people = hippovault(stack.home, "verify").stdout.decode()
    assert "integrity" in people
    assert people.endswith("nothing is wrong\n")


def test_a_damaged_store_fails_its_verification(home: Path) -> None:
    with serving(home) as process:
        with connected(process) as stub:
            Store(stub, "default").add("zebra")
        process.stop()
    with opened(database(home)) as connection:
        connection.execute("DELETE FROM hippo_fts_data WHERE id > 10")  # All but its two records about itself.
    with serving(home):
        told = hippovault(home, "verify", "--json")
        people = hippovault(home, "verify")
    assert (told.returncode, people.returncode) == (1, 1)
    document = json.loads(told.stdout)
    damaged = [check for check in document["checks"] if check["problems"]]
    assert document["wrong"] == sum(check["wrong"] for check in damaged) > 0
    assert f"`hippovault reindex --home {home}` makes it anew" in told.stdout.decode()
    assert people.stdout.decode().endswith(
        "1 thing is wrong\n" if document["wrong"] == 1 else f"{document['wrong']} things are wrong\n"
    )


def test_the_storage_service_is_found_where_it_is_said_to_listen(
    run: Run, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"unix:{stack.home}/run/storage.sock"
    monkeypatch.setenv("HIPPOVAULT_HOME", str(stack.home.parent / "none"))
    assert run("verify")[1]["error"]["reason"] == "NOT_RUNNING"
    assert run("verify", "--storage", address)[0] == 0
    monkeypatch.setenv("HIPPOVAULT_STORAGE_LISTEN", address)
    assert run("verify")[0] == 0


def test_a_backup_is_a_private_file_and_restores_the_store(run: Run, home: Path) -> None:
    run("remember", "It was backed up.", "--namespace", "backup", "--status", "open")
    home.mkdir()
    code, told = run("backup", str(home.parent))
    assert code == 0
    file = Path(told["file"])
    assert (file.parent, told["keys"], told["encryption"]) == (home.parent, None, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert hashlib.sha256(file.read_bytes()).hexdigest() == told["sha256"]
    assert (file.stat().st_size, told["memories"] > 0) == (told["size_bytes"], True)
    ended = hippovault(home, "restore", str(file), "--sha256", "0" * 64)
    assert (ended.returncode, "another SHA-256" in ended.stderr.decode()) == (1, True)
    restored = answer(home, "restore", str(file), "--sha256", told["sha256"], "--accept-damage")
    assert "is now as in" in restored["messages"][0]
    with serving(home):
        assert hippovault(home, "verify").returncode == 0
    with opened(database(home)) as connection:
        [(status,)] = rows(connection, "SELECT status FROM hippo_memories WHERE namespace = 'backup'")
    assert status == "open"


def test_how_far_it_is_is_shown_on_a_terminal_only(stack: Stack, tmp_path: Path) -> None:
    code, shown = in_terminal(stack.home, "backup", str(tmp_path / "one.db"))
    assert code == 0
    assert "%" in shown
    piped = hippovault(stack.home, "backup", str(tmp_path / "two.db"))
    assert (piped.returncode, piped.stderr, b"%" in piped.stdout) == (0, b"", False)


def test_a_backup_overwrites_nothing(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_text("mine")
    code, document = run("backup", str(file))
    assert (code, document["error"]["reason"]) == (1, "FILE_EXISTS")
    assert document["error"]["message"] == f"{file} exists already; name a new file"
    assert file.read_text() == "mine"
    missing = tmp_path / "missing" / "file"
    assert run("backup", str(missing))[1]["error"]["message"] == f"{missing}: No such file or directory"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("command", [["restore", "x.db"], ["encrypt"], ["decrypt"]])
def test_while_the_memory_runs_nobody_takes_its_store(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    (home / "run").mkdir(parents=True)
    monkeypatch.setenv("HIPPOVAULT_HOME", str(home))
    with lock_file(lock_path(Home(home)), "the memory is run"):
        code, document = run(*command)
    assert (code, document["error"]["reason"]) == (1, "RUNNING")
    assert document["error"]["message"].endswith(f"stop it first with: hippovault down --home {home}")


def test_a_process_that_is_down_is_told(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "run").mkdir(parents=True)
    monkeypatch.setenv("HIPPOVAULT_HOME", str(home))
    serving = state.Serving(pid=1, address="unix:/s", since="2026-01-02T03:04:05.678+00:00")
    state.write_serving(Home(home), {"storage": serving})
    with lock_file(lock_path(Home(home)), "the memory is run"):
        code, document = run("status")
        people = hippovault(home, "status").stdout.decode()
    assert code == 1
    assert document["processes"]["storage"] == {"state": "serving", **serving}
    down = {"state": "down", "pid": None, "since": "", "address": ""}
    assert (document["processes"]["embedding"], document["processes"]["gateway"]) == (down, down)
    assert [line.split()[:2] for line in people.splitlines() if " down " in line] == [
        ["embedding", "down"],
        ["gateway", "down"],
    ]


def test_what_is_no_backup_is_told(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (tmp_path / "text").write_text("no backup")
    for name in ("text", "missing"):
        ended = hippovault(home, "restore", str(tmp_path / name))
        assert ended.returncode == 1
        assert name in ended.stderr.decode()
    assert not database(home).exists()


def test_a_store_is_encrypted_backed_up_with_its_keys_rotated_and_decrypted(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    database(home).parent.mkdir(parents=True)
    settings = storage.encrypted("values")
    run = in_process({**environment(home), **settings}, monkeypatch, capfd)
    with storage.in_process(database(home)) as (stub, _):
        Store(stub, "default").add("zebra")
    assert "is encrypted now" in run("encrypt")[1]["messages"][-1]
    with serving(home, environment=settings):
        code, backup = run("backup", str(home.parent / "copy.db"))
        assert (code, backup["encryption"]) == (0, "values")
        code, rotated = run("rotate-key", "--data-key")
        assert (code, rotated["done"] == rotated["total"] > 0, bool(rotated["key_id"])) == (0, True, True)
        assert b"keep that key for backups" in hippovault(home, "rotate-key").stdout
    keys = Path(backup["keys"])
    assert (keys.name, stat.S_IMODE(keys.stat().st_mode)) == ("copy.db.keys", 0o600)
    assert run("restore", backup["file"])[0] == 0
    told = run("decrypt")[1]["messages"][-1]
    assert "is not encrypted now" in told
    assert "hippovault.toml" in told
    with storage.in_process(database(home)) as (stub, _):
        assert Store(stub, "default").listed() == ["zebra"]


def test_a_store_that_is_not_encrypted_has_no_key_to_rotate(run: Run) -> None:
    code, document = run("rotate-key")
    assert (code, document["error"]["code"]) == (1, "FAILED_PRECONDITION")
