"""The commands over single memories and their past, against a running memory."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from hippovault_gateway.cli import app
from support.command import Run, answer, hippovault, in_process
from support.processes import environment
from support.stack import Stack


@pytest.fixture
def run(stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command within this process, in a namespace of the test's own."""
    one = in_process(environment(stack.home), monkeypatch, capsys)
    namespace = uuid.uuid4().hex
    return lambda command, *arguments: one(command, "--namespace", namespace, *arguments)


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command for people, within the memory that `run` uses; returns exit code and what they see."""
    monkeypatch.setenv("COLUMNS", "200")

    def one(*arguments: str) -> tuple[int, dict[str, str]]:
        capsys.readouterr()
        code = app.run(arguments)
        ended = capsys.readouterr()
        return code, {"out": " ".join(ended.out.split()), "err": ended.err}

    return one


def test_a_memory_is_shown_by_each_of_its_names(run: Run) -> None:
    _, stored = run("remember", "Heron is the staging database.", "--category", "db", "--key", "staging",
                    "--status", "open", "--hint", "where do tests write", "--tag", "a")  # fmt: skip
    memory = stored["memory"]
    assert memory["status"] == "open"
    for name in ([str(memory["id"])], ["--hash", memory["content_hash"]], ["--category", "db", "--key", "staging"]):
        assert run("get", *name) == (0, {"memory": {**memory, "deleted_at": None}})
    run("forget", str(memory["id"]))
    code, document = run("get", str(memory["id"]))
    assert (code, document["error"]["code"], document["error"]["field"]) == (1, "NOT_FOUND", "id")
    assert run("get", str(memory["id"]), "--deleted")[1]["memory"]["deleted_at"]


def test_people_see_the_members_that_are_not_empty(run: Run, shown: Run) -> None:
    _, stored = run("remember", "Heron is [red]staging[/red].", "--status", "open", "--metadata", '{"n": 1}')
    memory = stored["memory"]
    code, seen = shown("get", str(memory["id"]), "--namespace", memory["namespace"])
    assert code == 0
    for part in ("status open", 'metadata {"n": 1}', "version 1", "Heron is [red]staging[/red]."):
        assert part in seen["out"]
    assert "category" not in seen["out"]


def test_a_list_is_narrowed_by_each_condition(run: Run) -> None:
    for content, category, status, tags, created in (
        ("one", "x", "open", "a,b", "2026-01-01"),
        ("two", "x", "done", "a", "2026-02-01"),
        ("three", "y", "open", "b", "2026-03-01"),
    ):
        labels = [f"--tag={tag}" for tag in tags.split(",")]
        run("remember", content, "--category", category, "--status", status, "--created-at", created, *labels)

    def listed(*options: str) -> list[str]:
        return [memory["content"] for memory in run("list", *options)[1]["memories"]]

    assert listed("--category", "x") == ["two", "one"]
    assert listed("--category", "x", "--category", "y") == ["three", "two", "one"]
    assert listed("--status", "open") == ["three", "one"]
    assert listed("--tags-all", "a", "--tags-all", "b") == ["one"]
    assert listed("--since", "2026-02-01", "--before", "2026-03-01T00:00:00Z") == ["two"]
    run("forget", str(run("list", "--status", "done")[1]["memories"][0]["id"]))
    assert listed() == ["three", "one"]
    assert listed("--deleted") == ["two"]
    first = run("list", "--all-states", "--limit", "2")[1]
    second = run("list", "--all-states", "--limit", "2", "--page-token", first["next_page_token"])[1]
    assert [one["content"] for one in first["memories"] + second["memories"]] == ["three", "two", "one"]
    assert [bool(one["deleted_at"]) for one in first["memories"]] == [False, True]


def test_an_update_sets_the_options_that_are_given(run: Run) -> None:
    _, stored = run("remember", "The port is 8080.", "--category", "api", "--key", "port", "--tag", "a",
                    "--hint", "where does it listen", "--metadata", '{"n": 1}', "--importance", "0.5")  # fmt: skip
    name = ("--category", "api", "--key", "port")
    code, would = run("update", *name, "--status", "open", "--dry-run")
    assert (code, would["changed"], would["dry_run"], would["memory"]["status"]) == (0, True, True, "open")
    assert run("get", *name)[1]["memory"]["status"] == ""
    _, updated = run("update", *name, "--content", "The port is 9090.", "--status", "open", "--expected-version", "1")
    memory = updated["memory"]
    assert (memory["content"], memory["status"], memory["version"]) == ("The port is 9090.", "open", 2)
    assert memory["created_at"] == stored["memory"]["created_at"]
    assert (memory["tags"], memory["hints"], memory["metadata"]) == (["a"], ["where does it listen"], {"n": 1})
    code, stale = run("update", *name, "--status", "done", "--expected-version", "1")
    assert (code, stale["error"]["code"]) == (1, "ABORTED")
    _, moved = run("update", *name, "--new-key", "gate", "--tag", "b", "--tag", "c", "--importance", "0",
                   "--memory-type", "fact", "--metadata", '{"m": 2}', "--created-at", "2026-01-01")  # fmt: skip
    memory = moved["memory"]
    assert (memory["category"], memory["key"], memory["version"]) == ("api", "gate", 2)
    assert (memory["tags"], memory["importance"], memory["memory_type"]) == (["b", "c"], 0, "fact")
    assert (memory["metadata"], memory["created_at"]) == ({"m": 2}, "2026-01-01T00:00:00Z")
    assert run("update", str(memory["id"]), "--status", "open")[1]["changed"] is False


def test_an_update_clears_what_it_is_told_to(run: Run) -> None:
    _, stored = run("remember", "Cleared in the end.", "--key", "k", "--tag", "a", "--hint", "zebra",
                    "--status", "open", "--importance", "1", "--metadata", '{"n": 1}')  # fmt: skip
    fields = [f"--clear={field}" for field in ("key", "tags", "hints", "importance", "metadata")]
    _, cleared = run("update", str(stored["memory"]["id"]), *fields, "--status", "")
    memory = cleared["memory"]
    assert [memory[name] for name in ("key", "tags", "hints", "importance", "metadata", "status")] == [
        "", [], [], None, {}, "",
    ]  # fmt: skip
    assert run("recall", "zebra", "--mode", "keyword")[1]["hits"] == []


def test_new_content_comes_from_stdin_too(stack: Stack) -> None:
    scope = ("--namespace", uuid.uuid4().hex)
    stored = answer(stack.home, "remember", "first", *scope)
    updated = answer(stack.home, "update", str(stored["memory"]["id"]), "-", *scope, stdin=b"second\n  line\n")
    assert updated["memory"]["content"] == "second\n  line"


def test_a_history_is_told_newest_first_and_each_of_its_times_shows_that_version(run: Run, shown: Run) -> None:
    for number in range(3):
        _, stored = run("remember", f"Edition {number}.", "--key", "book", "--hint", f"hint {number}")
    name = str(stored["memory"]["id"])
    _, first = run("history", name, "--limit", "2")
    _, second = run("history", name, "--page-token", first["next_page_token"])
    versions = first["versions"] + second["versions"]
    assert [one["memory"]["content"] for one in versions] == ["Edition 2.", "Edition 1.", "Edition 0."]
    assert [one["until"] for one in versions] == [None, versions[0]["since"], versions[1]["since"]]
    for one in versions:
        seen = run("get", name, "--as-of", one["since"])[1]["memory"]
        assert (seen["content"], seen["hints"]) == (one["memory"]["content"], [])
    assert run("get", name, "--as-of", "2020-01-01")[1]["error"]["code"] == "NOT_FOUND"
    _, seen = shown("history", name, "--namespace", stored["memory"]["namespace"])
    assert seen["out"].index("Edition 2.") < seen["out"].index("Edition 0.")


def test_what_was_forgotten_comes_back(run: Run) -> None:
    _, stored = run("remember", "Forgotten and found.", "--key", "k", "--hint", "zebra")
    name = ("--key", "k")
    assert run("undelete", *name)[1]["error"]["code"] == "NOT_FOUND"
    run("forget", *name)
    ids = [stored["memory"]["id"]]
    assert run("undelete", *name, "--dry-run") == (0, {"ids": ids, "undeleted": 1, "dry_run": True})
    assert run("undelete", *name) == (0, {"ids": ids, "undeleted": 1, "dry_run": False})
    assert [hit["id"] for hit in run("recall", "zebra", "--mode", "keyword")[1]["hits"]] == ids


BAD = [
    (["get"], "id"),
    (["get", "1", "--key", "k"], "id"),
    (["get", "1", "--as-of", "yesterday"], "as_of"),
    (["get", "1", "--as-of", "2026-01-01", "--deleted"], "as_of"),
    (["list", "--since", "never"], "since"),
    (["list", "--before", "never"], "before"),
    (["list", "--status", "a\nb"], "status[0]"),
    (["list", "--category", " "], "category[0]"),
    (["list", "--tags-all", "a", "--tags-all", "\x01"], "tags_all[1]"),
    (["list", "--deleted", "--all-states"], "all_states"),
    (["history"], "id"),
    (["history", "1", "--limit", "0"], "limit"),
    (["update", "1"], "clear"),
    (["update", "1", "--clear", "content"], "clear[0]"),
    (["update", "1", "--status", "a", "--clear", "status"], "clear[0]"),
    (["update", "1", "--content", " "], "content"),
    (["update", "1", "--hint", "x" * 201], "hints[0]"),
    (["update", "1", "--tag", "\udcff"], "tags"),
    (["update", "1", "--metadata", "["], "metadata"),
    (["update", "1", "--importance", "2"], "importance"),
    (["update", "1", "--status", "a", "--expected-version", "0"], "expected_version"),
    (["update", "--status", "a"], "id"),
    (["undelete"], "id"),
    (["purge", "--yes"], "id"),
    (["purge", "1", "--deleted-before", "2026-01-01", "--yes"], "deleted_before"),
    (["purge", "--deleted-before", "tomorrow", "--yes"], "deleted_before"),
    (["remember", "x", "--status", "s" * 257], "status"),
]


@pytest.mark.parametrize(("arguments", "field"), BAD, ids=lambda value: " ".join(value)[:40] if value else "")
def test_bad_input_is_refused_by_the_name_of_its_field(run: Run, arguments: list[str], field: str) -> None:
    code, document = run(*arguments)
    assert code == 1
    assert document["error"]["code"] == "INVALID_ARGUMENT", document
    assert document["error"]["field"] == field
    assert document["error"]["message"].startswith(f"{field}: ")


def test_a_status_is_imported(stack: Stack, tmp_path: Path) -> None:
    namespace = uuid.uuid4().hex
    file = tmp_path / "memories.jsonl"
    file.write_text(f'{{"content":"Imported.","status":"open","namespace":"{namespace}"}}\n')
    assert hippovault(stack.home, "import", str(file)).returncode == 0
    [memory] = answer(stack.home, "list", "--namespace", namespace)["memories"]
    assert memory["status"] == "open"


def test_what_is_purged_must_be_meant(run: Run, shown: Run) -> None:
    ids = [run("remember", f"Purged {number}.")[1]["memory"]["id"] for number in range(3)]
    code, refused = run("purge", str(ids[0]))
    assert (code, refused["error"]["field"]) == (1, "yes")
    assert run("purge", str(ids[0]), "--dry-run") == (0, {"ids": ids[:1], "purged": 1, "dry_run": True})
    assert run("list")[1]["total"] == 3
    assert run("purge", str(ids[0]), "--yes") == (0, {"ids": ids[:1], "purged": 1, "dry_run": False})
    run("forget", str(ids[1]))
    namespace = run("list")[1]["memories"][0]["namespace"]
    code, seen = shown("purge", "--namespace", namespace, "--deleted-before", "2100-01-01", "--dry-run")
    assert (code, seen) == (0, {"out": f"would erase in namespace {namespace}: {ids[1]}", "err": ""})
    assert run("purge", "--deleted-before", "2100-01-01", "--yes")[1]["ids"] == ids[1:2]
    assert run("list", "--all-states")[1]["total"] == 1
    assert shown("list", "--all-states", "--namespace", namespace)[1]["out"].endswith("1 of 1 memory")
