"""What people see of what others wrote."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from hippovault_gateway.cli import app, output

HOSTILE = "red \x1b[31m title \x1b]0;t\x07 back \r\x08 c1 \x9b31m turned \u202e\u2066 surrogate \ud800"
SHOWN = r"red \x1b[31m title \x1b]0;t\x07 back \r\x08 c1 \x9b31m turned \u202e\u2066 surrogate \ud800"


def test_what_a_terminal_would_obey_is_shown_instead(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    output.show_line(HOSTILE)
    output.show_table(["cell"], [[HOSTILE]])
    output.warn(HOSTILE)
    output.fail({"message": HOSTILE}, as_json=False)
    shown = capsys.readouterr()

    assert (shown.out.count(SHOWN), shown.err.count(SHOWN)) == (2, 2)
    assert "\x1b" not in shown.out + shown.err


def test_all_of_its_characters_are_escaped_and_no_others() -> None:
    controls = {chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) == "Cc"} - {"\n", "\t"}
    turning = set(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
    surrogates = set(map(chr, range(0xD800, 0xE000)))

    escaped = {chr(code) for code in range(0x110000) if output.printable(chr(code)) != chr(code)}
    assert escaped == controls | turning | surrogates


def test_a_name_on_the_command_line_is_shown_so(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    app.run(["list", "--home", str(home), "--bo\x1b[31mgus"])

    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["inf", "nan", "1e300", "3601", "0"])
def test_a_timeout_is_finite(capsys: pytest.CaptureFixture[str], home: Path, seconds: str) -> None:
    assert app.run(["list", "--home", str(home), "--timeout", seconds]) == app.USAGE
    assert "timeout" in capsys.readouterr().err
