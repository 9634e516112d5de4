"""The commands over memories: what goes in, what comes out, and what is refused, against a running memory."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hippovault_gateway.cli import app
from support.command import COMMAND, Run, answer, hippovault, in_process, in_terminal
from support.processes import environment, start

CONFIGURATION = """
[embedding]
log_level = "debug"
[storage]
log_level = "debug"
[gateway]
http = "off"
[list]
limit = 3
namespace = "settings"
"""
COMMANDS = tuple(app.COMMANDS)


@pytest.fixture(scope="module")
def memory(module_home: Path) -> Iterator[Path]:
    """The home of a running memory that has a configuration file."""
    module_home.mkdir()
    (module_home / "hippovault.toml").write_text(CONFIGURATION)
    try:
        answer(module_home, "up", "--detach")
        yield module_home
    finally:
        hippovault(module_home, "down")


@pytest.fixture
def run(memory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command within this process; returns exit code and JSON document."""
    return in_process(environment(memory), monkeypatch, capsys)


def test_a_memory_has_every_member_that_it_was_given(memory: Path) -> None:
    given = {
        "category": "people",
        "key": "mia",
        "tags": ["team", "two words"],
        "memory_type": "fact",
        "importance": 0.75,
        "metadata": {"source": "wiki", "n": [1, None]},
        "created_at": "2026-01-31T12:00:00Z",
        "namespace": "members",
        "content": "Mia leads the platform team. 日本語 ünd",
    }
    stored = answer(
        memory, "remember", str(given["content"]), "--namespace", "members", "--category", "people", "--key", "mia",
        "--tag", "team", "--tags", "two words", "--memory-type", "fact", "--importance", "0.75",
        "--metadata", json.dumps(given["metadata"]), "--created-at", "2026-01-31T12:00:00",
    )  # fmt: skip
    assert stored["outcome"] == "created"
    [hit] = answer(memory, "recall", "who leads the platform?", "--namespace", "members")["hits"]
    [listed] = answer(memory, "list", "--namespace", "members")["memories"]
    for shown in (stored["memory"], hit, listed):
        assert given.items() <= {**shown, "metadata": given["metadata"]}.items()
        assert given["metadata"].items() <= shown["metadata"].items()  # type: ignore[attr-defined]
        assert shown["id"] == listed["id"]
    assert hit["dense_rank"] == hit["keyword_rank"] == 1


def test_text_comes_from_stdin_too_and_loses_only_its_last_line_break(memory: Path) -> None:
    stored = answer(memory, "remember", "-", "--namespace", "stdin", stdin=b"first\n  second \n\n")
    assert stored["memory"]["content"] == "first\n  second \n"
    hyphen = answer(memory, "remember", "--namespace", "stdin", "--", "- an item")
    assert hyphen["memory"]["content"] == "- an item"


def test_forgetting_by_id_by_hash_and_by_key(run: Run) -> None:
    scope = ("--namespace", "forget")
    _, by_id = run("remember", "The first is forgotten by its id.", *scope)
    _, by_hash = run("remember", "The second is forgotten by its hash.", *scope)
    run("remember", "The third is forgotten by its key.", *scope, "--category", "c", "--key", "k")
    names = (
        [str(by_id["memory"]["id"])],
        ["--hash", by_hash["memory"]["content_hash"]],
        ["--category", "c", "--key", "k"],
    )
    for name in names:
        code, would = run("forget", *name, *scope, "--dry-run")
        assert (code, would["dry_run"]) == (0, True)
    assert run("list", *scope)[1]["total"] == 3
    for left, name in zip((2, 1, 0), names, strict=True):
        assert run("forget", *name, *scope)[1]["deleted"] == 1
        assert run("list", *scope)[1]["total"] == left
        code, again = run("forget", *name, *scope)
        assert (code, again["error"]["code"]) == (1, "NOT_FOUND")
    _, revived = run("remember", "The first is forgotten by its id.", *scope)
    assert (revived["outcome"], revived["memory"]["id"]) == ("revived", by_id["memory"]["id"])


def test_lists_are_paged_to_the_end_without_repetition(run: Run) -> None:
    for number in range(5):
        run("remember", f"The page has number {number}.", "--namespace", "pages")
    seen: list[int] = []
    token: tuple[str, ...] = ()
    for _ in range(5):
        _, page = run("list", "--namespace", "pages", "--limit", "2", *token)
        seen += [memory["id"] for memory in page["memories"]]
        token = ("--page-token", page["next_page_token"])
        if not page["next_page_token"]:
            break
    assert len(seen) == len(set(seen)) == 5
    assert seen == sorted(seen, reverse=True)


def test_a_filter_compares_tags_and_types_exactly(run: Run) -> None:
    for content, tag in (("Tagged test.", "test"), ("Tagged testing.", "testing"), ("Tagged a_b.", "a_b")):
        run("remember", content, "--namespace", "filter", "--tag", tag, "--memory-type", tag)
    for option in ("--tag", "--memory-type"):
        _, listed = run("list", "--namespace", "filter", option, "test")
        assert [memory["content"] for memory in listed["memories"]] == ["Tagged test."]
        _, found = run("recall", "tagged", "--namespace", "filter", option, "test")
        assert [hit["content"] for hit in found["hits"]] == ["Tagged test."]


def test_flags_win_over_the_environment_over_the_file_over_defaults(
    run: Run, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        run("remember", f"The setting has number {number}.", "--namespace", "settings")

    def shown(*arguments: str) -> int:
        return len(run("list", *arguments)[1]["memories"])

    assert shown() == 3
    monkeypatch.setenv("HIPPOVAULT_LIST_LIMIT", "2")
    assert shown() == 2
    assert shown("--limit", "1") == 1
    monkeypatch.delenv("HIPPOVAULT_LIST_LIMIT")
    (memory / "hippovault.toml").write_text(CONFIGURATION.replace("limit = 3", ""))
    try:
        assert shown() == 5
    finally:
        (memory / "hippovault.toml").write_text(CONFIGURATION)
    assert run("status")[1]["ping"]["mcp_http_url"] == ""


def test_a_flag_switches_off_what_the_environment_switches_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPPOVAULT_FORGET_DRY_RUN", "true")
    _, stored = run("remember", "Switched on and off.", "--namespace", "switch")
    name = (str(stored["memory"]["id"]), "--namespace", "switch")
    assert run("forget", *name)[1]["dry_run"] is True
    assert run("forget", *name, "--dry-run=false")[1]["dry_run"] is False


def test_an_unknown_memory_is_told_by_the_name_that_it_was_given(run: Run) -> None:
    for name, field in (
        (["999999"], "id"),
        (["--hash", "0" * 64], "content_hash"),
        (["--category", "c", "--key", "unknown"], "key"),
    ):
        code, document = run("forget", *name)
        assert (code, document["error"]["code"]) == (1, "NOT_FOUND")
        assert document["error"]["message"].startswith(f"{document['error']['field']}: ")
        assert document["error"]["field"] == field, name


BAD = [
    (["remember", ""], "content"),
    (["remember", " \t\n"], "content"),
    (["remember", "bell \x07"], "content"),
    (["remember", "\udcff"], "content"),
    (["remember"], "content"),
    (["remember", "a", "--category", "c\nd"], "category"),
    (["remember", "a", *(f"--tag={number}" for number in range(33))], "tags"),
    (["remember", "a", "--tag", "b", "--tag", "x" * 129], "tags[1]"),
    (["remember", "a", "--tag", "b,c"], "tags[0]"),
    (["remember", "a", "--tag", " "], "tags[0]"),
    (["remember", "a", "--hint", "x" * 201], "hints[0]"),
    (["remember", "a", "--importance", "1.5"], "importance"),
    (["remember", "a", "--importance", "nan"], "importance"),
    (["remember", "a", "--metadata", "[1]"], "metadata"),
    (["remember", "a", "--metadata", "{"], "metadata"),
    (["remember", "a", "--created-at", "yesterday"], "created_at"),
    (["remember", "a", "--namespace", "n" * 257], "namespace"),
    (["recall", " "], "query"),
    (["recall", "q" * 8193], "query"),
    (["recall", "q", "--limit", "0"], "limit"),
    (["recall", "q", "--limit", "-1"], "limit"),
    (["recall", "q", "--limit", "101"], "limit"),
    (["recall", "q", "--limit", "99999999999"], "limit"),
    (["recall", "q", "--mode", "magic"], "mode"),
    (["recall", "q", "--oversample-factor", "0"], "oversample_factor"),
    (["recall", "q", "--tag", "\udcff"], "tags"),
    (["recall", "q", "--tag", " "], "tags[0]"),
    (["recall", "q", "--memory-type", "\x01"], "memory_type"),
    (["list", "--limit", "0"], "limit"),
    (["list", "--page-token", "garbage"], "page_token"),
    (["forget"], "id"),
    (["forget", "1", "--hash", "0" * 64], "id"),
    (["forget", "0"], "id"),
    (["forget", "--key", " "], "key"),
    (["forget", "99999999999999999999"], "id"),
]


@pytest.mark.parametrize(("arguments", "field"), BAD, ids=lambda value: " ".join(value)[:40] if value else "")
def test_bad_input_is_refused_by_the_name_of_its_field(run: Run, arguments: list[str], field: str) -> None:
    before = run("status")[1]["ping"]["live_memories"]
    code, document = run(*arguments)
    assert code == 1
    assert document["error"]["code"] == "INVALID_ARGUMENT"
    assert document["error"]["field"] == field
    assert document["error"]["message"].startswith(f"{field}: ")
    assert run("status")[1]["ping"]["live_memories"] == before


def test_content_too_long_for_any_request_is_refused_like_any_other(memory: Path) -> None:
    for size in (65_537, 20 * 1024 * 1024):
        refused = hippovault(memory, "remember", "-", stdin=b"x" * size)
        assert refused.returncode == 1
        assert refused.stderr.decode() == f"hippovault: content: must have at most 65536 UTF-8 bytes, has {size}\n"


def test_a_command_line_that_makes_no_sense_is_told_apart(run: Run, memory: Path, home: Path) -> None:
    home.mkdir()
    for arguments, named in (
        (["remember", "x", "--bogus"], "--bogus"),
        (["remember", "x", "--importance", "abc"], "--importance"),
        (["recall"], "QUERY"),
        (["recall", "q", "--timeout", "0"], "--timeout"),
        (["bogus"], "bogus"),
        (["recall", "staging", "database"], "'database' is one word too many; write quotes around a text of several"),
        (["remember", "A", "text", "of", "several", "words"], "'text' is one word too many; write quotes"),
    ):
        code, document = run(*arguments)
        assert code == 2
        assert document["error"]["reason"] == "USAGE"
        assert named in document["error"]["message"]
    (home / "hippovault.toml").write_text("[list")
    broken = hippovault(home, "list")
    assert (broken.returncode, broken.stdout) == (2, b"")
    assert f"{home}/hippovault.toml: " in broken.stderr.decode()
    shown = hippovault(memory, "remember", "x", "--bogus")
    assert (shown.returncode, shown.stdout) == (2, b"")
    assert b"--bogus" in shown.stderr
    assert b"x" not in shown.stderr.replace(b"hippovault", b"")


def test_an_import_takes_the_good_lines_and_names_the_bad_ones(memory: Path, tmp_path: Path) -> None:
    good = [
        {"content": f"Fact number {number} of the file.", "namespace": "import", "key": f"k{number}"}
        for number in range(70)
    ]
    lines = [json.dumps(one) for one in good]
    lines[10:10] = ['{"content":"Fact number 3 of the file.","namespace":"import","tags":["again"]}', "", "{nonsense"]
    lines[40:40] = ['{"content":"  "}', '{"content":"fine","tags":["a","b\\u0000"]}', '{"text":"x"}']
    file = tmp_path / "memories.jsonl"
    file.write_text("\n".join(lines))
    ended = hippovault(memory, "import", str(file), "--json")
    assert ended.returncode == 1
    counted = json.loads(ended.stdout)
    assert [(one["line"], one["field"]) for one in counted["errors"]] == [
        (13, "line"), (41, "content"), (42, "tags[1]"), (43, "content"),
    ]  # fmt: skip
    assert (counted["lines"], counted["failed"]) == (75, 4)
    assert counted["created"] + counted["existed"] == 71
    assert b"line 13: line: is not JSON" in ended.stderr
    assert b"\x1b" not in ended.stderr
    assert answer(memory, "list", "--namespace", "import", "--limit", "1")["total"] in (70, 71)


def test_status_tells_the_models_that_are_served(memory: Path, run: Run) -> None:
    run("recall", "what the model is loaded for")
    [model] = run("status")[1]["models"]
    assert model["model_revision"]
    assert (model["name"], model["dimensions"], model["loaded"]) == ("all-MiniLM-L6-v2", 384, True)
    assert (model["load_error"], model["server"]) == ("", "")
    people = hippovault(memory, "status").stdout.decode()
    assert re.search(r"all-MiniLM-L6-v2 +loaded +384", people)


def test_an_import_may_be_repeated(memory: Path, tmp_path: Path) -> None:
    file = tmp_path / "memories.jsonl"
    file.write_text("".join(f'{{"content":"Repeated {number}.","namespace":"again"}}\n' for number in range(40)))
    first, second = (answer(memory, "import", str(file)) for _ in range(2))
    assert (first["created"], first["existed"]) == (40, 0)
    assert (second["created"], second["existed"]) == (0, 40)
    people = hippovault(memory, "import", str(file))
    assert people.stdout == b"40 lines: 0 created, 40 existed, 0 updated, 0 revived, 0 failed\n"


def test_a_file_that_is_not_there_is_named(memory: Path, tmp_path: Path) -> None:
    ended = hippovault(memory, "import", str(tmp_path / "missing.jsonl"))
    assert ended.returncode == 1
    assert b"missing.jsonl" in ended.stderr


def test_an_import_shows_a_bar_on_a_terminal_only(memory: Path, tmp_path: Path) -> None:
    file = tmp_path / "memories.jsonl"
    file.write_text('{"content":"On a terminal.","namespace":"terminal"}\nnonsense\n')
    code, shown = in_terminal(memory, "import", str(file))
    assert code == 1
    assert "%" in shown
    assert "line 2: line: is not JSON" in shown


def test_colour_is_for_terminals_that_want_it_and_memories_are_never_markup(memory: Path) -> None:
    text = "A [red]literal[/red] [link=https://x.example]bracket[/link] and [/nothing] :smile:"
    answer(memory, "remember", text, "--namespace", "markup")
    _, colourful = in_terminal(memory, "list", "--namespace", "markup", COLUMNS="200")
    _, plain = in_terminal(memory, "list", "--namespace", "markup", COLUMNS="200", NO_COLOR="1")
    piped = hippovault(memory, "list", "--namespace", "markup", extra_environment={"COLUMNS": "200"}).stdout.decode()
    for shown in (colourful, plain, piped):
        assert text in shown
    assert "\x1b[1m" in colourful
    assert "\x1b[3" not in plain
    assert "\x1b" not in piped


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, home: Path) -> None:
    home.mkdir()
    ended = hippovault(home, command, "--help")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert f"hippovault {command}" in ended.stdout.decode()
    assert "--home" in ended.stdout.decode()
    assert not set(re.findall(r"--(?:no|empty)-[\w-]+", ended.stdout.decode())) - {"--no-surprise-boost"}
    assert list(home.iterdir()) == []


def test_the_overview_describes_every_command(home: Path) -> None:
    home.mkdir()
    lines = hippovault(home, "--help").stdout.decode().splitlines()
    for command in COMMANDS:
        assert any(line.split()[1:2] == [command] and len(line.split()) > 4 for line in lines), command


def test_a_reader_that_leaves_early_is_no_trace(memory: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "list", "--namespace", "import", "--limit", "50"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(memory),
    )
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 1


@pytest.mark.parametrize(
    "arguments",
    [["remember", "x"], ["recall", "x"], ["list"], ["forget", "1"], ["import", "x"], ["get", "1"], ["verify"]],
)
def test_without_a_memory_the_way_to_start_one_is_told(home: Path, arguments: list[str]) -> None:
    (home / "run").mkdir(parents=True)
    file = home.parent / "x"
    file.write_text('{"content":"x"}\n')
    ended = hippovault(home, *arguments, "--json")
    assert ended.returncode == 1
    error = json.loads(ended.stdout)["error"]
    assert (error["code"], error["reason"]) == ("UNAVAILABLE", "NOT_RUNNING")
    assert error["message"].endswith(f"is not running; start it with: hippovault up --detach --home {home}")


@pytest.mark.parametrize(
    "arguments",
    [["up", "--detach"], ["down"], ["status"], ["doctor"], ["recall", "x"], ["connect", "cursor", "--write"]],
    ids=lambda arguments: arguments[0],
)
def test_a_home_that_is_no_utf8_is_refused(run: Run, home: Path, arguments: list[str]) -> None:
    code, refused = run(*arguments, "--home", f"{home}\udcff")
    assert (code, refused["error"]["reason"]) == (1, "HOME_NOT_UTF8")
    assert not list(home.parent.glob("*\udcff"))


def test_a_file_whose_name_is_no_utf8_is_told_to_programs_too(run: Run) -> None:
    code, refused = run("import", "\udcff.jsonl")
    assert (code, refused["error"]["message"]) == (1, "\udcff.jsonl: No such file or directory")


def test_a_gateway_that_listens_elsewhere_is_found_by_its_own_settings(home: Path) -> None:
    elsewhere = f"unix:{home.parent}/elsewhere.sock"
    home.mkdir()
    (home / "hippovault.toml").write_text(f'[gateway]\nhttp = "off"\nlisten = "{elsewhere}"\n')
    gateway = start(["hippovault_gateway"], home, "gateway")
    try:
        found = json.loads(hippovault(home, "status", "--json").stdout)
        nowhere = {"HIPPOVAULT_GATEWAY_LISTEN": f"unix:{home}/nowhere.sock"}
        lost = json.loads(hippovault(home, "status", "--json", extra_environment=nowhere).stdout)
        listed = json.loads(hippovault(home, "list", "--json").stdout)
    finally:
        gateway.stop()
    assert (found["error"], found["ping"]["services"][1]["serving"]) == (None, False)
    assert (lost["error"]["reason"], lost["ping"]) == ("NOT_RUNNING", None)
    # It answers, whoever started it: what is missing is behind it.
    assert listed["error"]["message"].startswith("the storage service is unavailable")


def test_a_wrong_setting_of_the_gateway_is_told_to_programs_too(home: Path) -> None:
    home.mkdir()
    (home / "hippovault.toml").write_text("[gateway]\nbogus = 1\n")
    ended = hippovault(home, "list", "--json")
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["error"]["reason"] == "INVALID_SETTING"
    assert b"bogus" in ended.stderr
