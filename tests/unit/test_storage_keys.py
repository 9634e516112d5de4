"""Where the key comes from that wraps a store's keys, and what is told when it cannot be used."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest

from hippovault_chassis.errors import ServiceError
from hippovault_storage import keys
from hippovault_storage.keys import KeySource, WrappingKey
from support.storage import Code

KEYS = [bytes(range(n, n + 32)) for n in range(3)]
LINES = [base64.b64encode(key).decode() for key in KEYS]
IDS = [WrappingKey(key).id for key in KEYS]
SHORT = base64.b64encode(bytes(31)).decode()


def private(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def refusal(source: KeySource) -> str:
    with pytest.raises(ServiceError) as caught:
        source.read()
    assert caught.value.code is Code.FAILED_PRECONDITION
    return caught.value.message


def test_the_first_line_is_the_key_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{LINES[0]}\n{LINES[1]}\n"
    file = private(tmp_path / "key", text)
    assert [key.id for key in KeySource(file).read()] == IDS[:2]
    command = f"{sys.executable} -c 'print(open(\"{file}\").read())'"
    assert [key.id for key in KeySource(None, command).read()] == IDS[:2]
    monkeypatch.setenv(keys.KEY_SETTING, text)
    assert [key.id for key in KeySource().read()] == IDS[:2]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        (SHORT, "key 1 has 31 bytes, must have 32"),
        (f"{LINES[0]}\n{SHORT}", "key 2 has 31 bytes"),
        ("swordfish!", "key 1 is not base64"),
        ("schlüssel", "base64"),
    ],
)
def test_what_is_no_key_is_told_by_its_source_without_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    file = private(tmp_path / "key", text)
    monkeypatch.setenv(keys.KEY_SETTING, "")
    messages = [refusal(KeySource(file)), refusal(KeySource(None, f"cat {file}"))]
    assert messages[0].startswith(f"{keys.FILE_SETTING}: {file}")
    assert messages[1].startswith(f"{keys.COMMAND_SETTING}: ")
    if text:
        monkeypatch.setenv(keys.KEY_SETTING, text)
        messages.append(refusal(KeySource()))
        assert messages[2].startswith(keys.KEY_SETTING)
    for message in messages:
        assert told in message
        assert not text.strip() or text.strip() not in message


def test_exactly_one_source_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (keys.FILE_SETTING, keys.KEY_SETTING, keys.COMMAND_SETTING):
        assert name in refusal(KeySource())
    monkeypatch.setenv(keys.KEY_SETTING, LINES[0])
    both = refusal(KeySource(tmp_path / "key"))
    assert both == f"{keys.FILE_SETTING} and {keys.KEY_SETTING} are set; set one alone"
    assert f"{keys.KEY_SETTING} and {keys.COMMAND_SETTING}" in refusal(KeySource(None, "true"))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660])
def test_a_file_that_others_may_use_is_refused_with_the_fix(tmp_path: Path, mode: int) -> None:
    file = private(tmp_path / "a key", LINES[0], mode)
    message = refusal(KeySource(file))
    assert f"{mode:04o}" in message
    assert f"chmod 600 '{file}'" in message


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    assert f"{tmp_path / 'none'} cannot be read: No such file" in refusal(KeySource(tmp_path / "none"))
    (tmp_path / "directory").mkdir(0o700)
    assert "directory" in refusal(KeySource(tmp_path / "directory"))


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("false --token=secret", "false ended with exit code 1"),
        ("/nowhere/program secret", "/nowhere/program cannot be run: No such file"),
        ("'secret", "is not a command line"),
        (" ", "is not a command line"),
        ("tail -f /dev/null --pid=1", "tail did not end within 0.05 s"),
    ],
)
def test_a_command_that_fails_is_told_without_its_arguments(
    monkeypatch: pytest.MonkeyPatch, command: str, told: str
) -> None:
    monkeypatch.setattr(keys, "COMMAND_SECONDS", 0.05 if "tail" in command else 10.0)
    message = refusal(KeySource(None, command))
    assert message.startswith(keys.COMMAND_SETTING)
    assert told in message
    assert "secret" not in message


def test_a_command_is_run_without_a_shell(tmp_path: Path) -> None:
    assert "ended" in refusal(KeySource(None, f"cat /dev/null; touch {tmp_path / 'made'}"))
    assert not (tmp_path / "made").exists()


def test_a_wrapped_key_opens_only_with_its_key_and_for_what_it_belongs_to() -> None:
    first, second = (WrappingKey(key) for key in KEYS[:2])
    wrapped = first.wrap(b"secret", b"here")
    assert first.unwrap(wrapped, b"here") == b"secret"
    assert second.unwrap(wrapped, b"here") is None
    assert first.unwrap(wrapped, b"there") is None
    assert first.unwrap(wrapped[:-1], b"here") is None
    assert first.unwrap(b"", b"here") is None
    assert wrapped != first.wrap(b"secret", b"here")
