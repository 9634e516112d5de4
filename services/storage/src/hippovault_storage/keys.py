"""Key-encryption keys: where they come from, and how they wrap the keys of a store."""

from __future__ import annotations

import base64
import binascii
import os
import shlex
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hippovault_chassis.errors import ServiceError

KEY_BYTES = 32
ID_BYTES = 8
NONCE_BYTES = 12
COMMAND_SECONDS = 30.0

FILE_SETTING = "HIPPOVAULT_STORAGE_KEY_FILE"
KEY_SETTING = "HIPPOVAULT_STORAGE_KEY"
COMMAND_SETTING = "HIPPOVAULT_STORAGE_KEY_COMMAND"

OTHERS = stat.S_IRWXG | stat.S_IRWXO


def derived(key: bytes, purpose: str, length: int = KEY_BYTES) -> bytes:
    """Returns what HKDF-SHA-256 derives from a key for one purpose."""
    return HKDF(hashes.SHA256(), length, salt=None, info=f"hippovault {purpose}".encode()).derive(key)


def key_id(key: bytes) -> bytes:
    """Returns the name of a key, which tells nothing of it."""
    return derived(key, "id", ID_BYTES)


class WrappingKey:
    """A key that encrypts other keys.

    Args:
        key: 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self.id = key_id(key).hex()
        self._cipher = AESGCM(derived(key, "wrap"))

    def wrap(self, secret: bytes, belonging: bytes) -> bytes:
        """Returns the nonce and the ciphertext of a secret; what it belongs to is authenticated with it."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, secret, belonging)

    def unwrap(self, wrapped: bytes, belonging: bytes) -> bytes | None:
        """Returns the secret; None when it was wrapped otherwise."""
        try:
            return self._cipher.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], belonging)
        except (InvalidTag, ValueError):
            return None


@dataclass(frozen=True)
class KeySource:
    """Where wrapping keys are read: a file, an environment variable or a command, exactly one of them.

    Each gives lines of 32 bytes in base64. The first is the key in use; further ones unwrap what an older one wrapped.
    """

    file: Path | None = None
    command: str = ""

    def read(self) -> list[WrappingKey]:
        """Returns the keys, read anew.

        Raises:
            ServiceError: FAILED_PRECONDITION when there is no source or several, or it gives no keys; the message names
                the source and never its value.
        """
        given = {
            FILE_SETTING: self.file,
            KEY_SETTING: os.environ.get(KEY_SETTING),
            COMMAND_SETTING: self.command,
        }
        sources = [name for name, value in given.items() if value]
        if not sources:
            raise ServiceError.refused("KEY_MISSING", f"no key is set; set one of {', '.join(given)}")
        if len(sources) > 1:
            raise ServiceError.refused("KEY_AMBIGUOUS", f"{' and '.join(sources)} are set; set one alone")
        if self.file:
            return _parsed(f"{FILE_SETTING}: {self.file}", _read_file(self.file))
        if self.command:
            return _parsed(f"{COMMAND_SETTING}: the output of {_program(self.command)}", _run(self.command))
        return _parsed(KEY_SETTING, os.environ[KEY_SETTING])


def _parsed(source: str, text: str) -> list[WrappingKey]:
    lines = text.split()
    if not lines:
        raise ServiceError.refused("KEY_INVALID", f"{source} is empty; it must have {KEY_BYTES} bytes in base64")
    return [WrappingKey(_decoded(source, number, line)) for number, line in enumerate(lines, start=1)]


def _decoded(source: str, number: int, line: str) -> bytes:
    try:
        key = base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError):
        raise ServiceError.refused("KEY_INVALID", f"{source}, key {number} is not base64") from None
    if len(key) != KEY_BYTES:
        raise ServiceError.refused("KEY_INVALID", f"{source}, key {number} has {len(key)} bytes, must have {KEY_BYTES}")
    return key


def _read_file(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        if mode & OTHERS:
            raise ServiceError.refused(
                "KEY_FILE_NOT_PRIVATE",
                f"{FILE_SETTING}: {path} has mode {stat.S_IMODE(mode):04o}, so that others may use it; "
                f"run: chmod 600 {shlex.quote(str(path))}",
            )
        return path.read_text("ascii")
    except OSError as error:
        raise ServiceError.refused(
            "KEY_FILE_UNREADABLE", f"{FILE_SETTING}: {path} cannot be read: {error.strerror}"
        ) from None
    except UnicodeDecodeError:
        raise ServiceError.refused("KEY_INVALID", f"{FILE_SETTING}: {path} is not base64") from None


def _run(command: str) -> str:
    # Neither its output nor its arguments may be told: both may be secret.
    problem = f"{COMMAND_SETTING}: {_program(command)}"
    try:
        ended = subprocess.run(  # noqa: S603  # Running what the user names is the purpose.
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        text = ended.stdout.decode("ascii")
    except subprocess.TimeoutExpired:
        raise ServiceError.refused(
            "KEY_COMMAND_FAILED", f"{problem} did not end within {COMMAND_SECONDS:g} s"
        ) from None
    except OSError as error:
        raise ServiceError.refused("KEY_COMMAND_FAILED", f"{problem} cannot be run: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ServiceError.refused("KEY_INVALID", f"{problem} printed what is not base64") from None
    if ended.returncode:
        raise ServiceError.refused("KEY_COMMAND_FAILED", f"{problem} ended with exit code {ended.returncode}")
    return text


def _program(command: str) -> str:
    try:
        return shlex.split(command)[0]
    except (ValueError, IndexError):
        raise ServiceError.refused("KEY_COMMAND_FAILED", f"{COMMAND_SETTING} is not a command line") from None
