"""What is narrowed, explained, summed up and remembered many at a time, against a running memory."""

from __future__ import annotations

import json
import re
import uuid

import pytest

from support.command import Run, hippovault, in_process, in_terminal
from support.processes import environment
from support.stack import Stack


@pytest.fixture
def namespace() -> str:
    """Of the test's own."""
    return uuid.uuid4().hex


@pytest.fixture
def run(stack: Stack, namespace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command within this process, in the test's namespace."""
    one = in_process(environment(stack.home), monkeypatch, capsys)
    return lambda command, *arguments: one(command, "--namespace", namespace, *arguments)


NARROWED = [
    (["--tag", "a", "--tag", "c"], {"one", "two"}),
    (["--tags-all", "a", "--tags-all", "b"], {"one"}),
    (["--memory-type", "fact"], {"one"}),
    (["--memory-type", "fact", "--memory-type", "plan"], {"one", "three"}),
    (["--category", "x"], {"one", "two"}),
    (["--category", "x", "--category", "y"], {"one", "two", "three"}),
    (["--status", "open"], {"one", "three"}),
    (["--since", "2026-02-01", "--before", "2026-03-01T00:00:00Z"], {"two"}),
    (["--status", "open", "--category", "y"], {"three"}),
]
BAD = [
    (["--memory-type", "fact", "--memory-type", "\x01"], "memory_type[1]"),
    (["--since", "never"], "since"),
    (["--category", " "], "category[0]"),
    (["--tags-all", "a", "--tags-all", "\x01"], "tags_all[1]"),
    (["--status", "\udcff"], "status"),
]


def test_a_recall_is_narrowed_as_a_list_is(run: Run) -> None:
    for content, category, status, tags, created, kind in (
        ("one", "x", "open", "a,b", "2026-01-01", "fact"),
        ("two", "x", "done", "a", "2026-02-01", ""),
        ("three", "y", "open", "b", "2026-03-01", "plan"),
    ):
        labels = [f"--tag={tag}" for tag in tags.split(",")]
        run("remember", f"The number is {content}", "--category", category, "--status", status, "--created-at",
            created, "--memory-type", kind, *labels)  # fmt: skip
    for options, expected in NARROWED:
        for document in (run("list", *options)[1]["memories"], run("recall", "which number?", *options)[1]["hits"]):
            assert {memory["content"].split()[-1] for memory in document} == expected, options
    for options, field in BAD:
        for command in (["list"], ["recall", "which number?"]):
            assert run(*command, *options)[1]["error"]["field"] == field
    assert [one["content"] for one in run("list", "--skip", "2")[1]["memories"]] == ["The number is one"]
    assert run("list", "--skip", "-1")[1]["error"]["field"] == "skip"


def test_each_hit_is_explained(run: Run, stack: Stack, namespace: str) -> None:
    run("remember", "The staging database is called heron.", "--hint", "where do tests write")
    run("remember", "Mia leads the platform team.")
    asked = ("recall", "where do the tests of staging write", "--namespace", namespace)
    hits = {hit["id"]: hit for hit in run(*asked[:2])[1]["hits"]}
    code, shown = in_terminal(stack.home, *asked, "--explain", COLUMNS="80")
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    reasons = plain.partition("matched by")[2].partition("mode:")[0]
    rows = {int(row.split()[0]): row for row in re.split(r"\n +(?=\d+ )", reasons)[1:]}
    assert rows.keys() == hits.keys()
    for number, row in rows.items():
        hit = hits[number]
        assert f"dense {hit['dense_rank']}: {hit['cosine_similarity']:.3f}" in row
        assert hit["keyword_score"] is None or f"keyword {hit['keyword_rank']}: {hit['keyword_score']:.3f}" in row
        for name in ("relevance", "surprise_score", "salience", "decay"):
            assert f"{hit[name]:.3f}" in row, name
        assert set(hit["matched_by"]) <= set(row.split())
    assert "mode: hybrid" in plain
    assert "matched by" not in in_terminal(stack.home, *asked)[1]


def test_a_deleted_memory_is_seen_among_all(run: Run) -> None:
    _, stored = run("remember", "Deleted.")
    name = str(stored["memory"]["id"])
    assert run("get", name, "--all-states")[1]["memory"]["deleted_at"] is None
    run("forget", name)
    assert run("get", name)[0] == 1
    assert run("get", name, "--all-states")[1]["memory"]["deleted_at"]
    assert run("get", name, "--all-states", "--deleted")[1]["error"]["field"] == "all_states"


def test_the_last_hours_are_summed_up(run: Run, stack: Stack, namespace: str) -> None:
    run("remember", "Mia leads the platform team.", "--tag", "team", "--memory-type", "fact")
    run("remember", "The staging database is called heron.", "--tag", "team")
    run("remember", "Long ago.", "--created-at", "2020-01-01")
    code, summed = run("summary")
    assert (code, summed["total_memories"], summed["by_type"]) == (0, 2, {"fact": 1, "": 1})
    assert summed["top_tags"] == {"team": 2}
    assert len(summed["highlights"]) == 2
    assert run("summary", "--hours", "80000")[1]["total_memories"] == 3
    assert run("summary", "--hours", "0")[1]["error"]["field"] == "hours"
    people = hippovault(stack.home, "summary", "--namespace", namespace).stdout.decode()
    assert "top tags: team 2" in people
    assert "2 memories since " in people
    assert "\x1b" not in people


def test_many_are_remembered_from_stdin(run: Run, stack: Stack, namespace: str) -> None:
    lines = [json.dumps({"content": f"Line {number}.", "namespace": namespace}) for number in range(40)]
    lines[7:7] = ['{"content": " "}', "", "{nonsense"]
    ended = hippovault(stack.home, "remember", "--jsonl", "--json", stdin="\n".join(lines).encode())
    told = json.loads(ended.stdout)
    assert (ended.returncode, told["lines"], told["created"], told["failed"]) == (1, 42, 40, 2)
    assert [(one["line"], one["field"]) for one in told["errors"]] == [(8, "content"), (10, "line")]
    assert run("list")[1]["total"] == 40
    again = hippovault(stack.home, "remember", "--jsonl", stdin="\n".join(lines[20:]).encode())
    assert again.returncode == 0
    assert b"23 existed" in again.stdout
    for options in (["text"], ["--key", "k"], ["--tag", "t"], ["-"], ["--request-id", "r"]):
        refused = hippovault(stack.home, "remember", "--jsonl", "--json", *options, stdin=lines[0].encode())
        assert json.loads(refused.stdout)["error"]["field"] == "jsonl", options


def test_a_write_is_done_once_under_its_name(run: Run) -> None:
    once = ("--request-id", "r1")
    first, again = (run("remember", "Done once.", *once)[1] for _ in range(2))
    assert (first["outcome"], again["outcome"], again["memory"]["id"]) == ("created", "created", first["memory"]["id"])
    code, refused = run("remember", "Something else.", *once)
    assert (code, refused["error"]["field"], refused["error"]["reason"]) == (1, "request_id", "REQUEST_ID_REUSED")
    name = str(first["memory"]["id"])
    for command, told in (
        (["update", name, "--status", "open"], "changed"),
        (["forget", name], "ids"),
        (["undelete", name], "ids"),
        (["purge", name, "--yes"], "ids"),
    ):
        (code, did), (repeated, said) = (run(*command, "--request-id", command[0]) for _ in range(2))
        assert (code, repeated, did[told]) == (0, 0, said[told]), command
    assert run("forget", name, "--request-id", "x" * 129)[1]["error"]["field"] == "request_id"
    assert run("forget", name, "--request-id", "\udcff")[1]["error"]["field"] == "request_id"


def test_a_pipe_gets_no_colour_and_one_document(stack: Stack, run: Run, namespace: str) -> None:
    run("remember", "Mia leads the platform team.")
    asked = ("recall", "who leads?", "--namespace", namespace, "--explain")
    assert b"\x1b" not in hippovault(stack.home, *asked, extra_environment={"TERM": "xterm"}).stdout
    ended = hippovault(stack.home, *asked, "--json")
    assert json.loads(ended.stdout)["hits"][0]["content"] == "Mia leads the platform team."
    _, shown = in_terminal(stack.home, *asked, "--json")
    assert json.loads(shown)["mode"] == "hybrid"
