"""Which keys a store has, and whether they are the ones that it should have."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from hippovault_chassis.commands import command
from hippovault_chassis.errors import ServiceError
from hippovault_storage import keyring
from hippovault_storage.keyring import Keyring
from hippovault_storage.keys import KeySource, WrappingKey
from hippovault_storage.sqlite import files, query, schema
from hippovault_storage.sqlite.connections import Connection, connect_as_left
from hippovault_storage.vault import Mode, Vault

LABEL = "encryption"
"""The name in hippo_state under which a database says which keys it needs."""


@dataclass(frozen=True)
class Encryption:
    """How a store is to be encrypted.

    Args:
        mode: What is encrypted.
        source: Where the key is read; not asked with the mode "off".
    """

    mode: Mode = "off"
    source: KeySource = field(default_factory=KeySource)


OFF = Encryption()


class Lockbox:
    """The keys of one store, and their file.

    Args:
        path: The database.
        source: Where the key that wraps them is read.
        keyring: The keys.
        wrapping: What wraps them in their file from the next time on that it is written.
    """

    def __init__(self, path: Path, source: KeySource, keyring: Keyring, wrapping: WrappingKey | None) -> None:
        self.path = path
        self.keyring = keyring
        self.vault: Vault = keyring.vault()
        self.source = source
        self.wrapping = wrapping

    @property
    def key_id(self) -> str:
        """Names the key that wraps, and tells nothing of it."""
        return self.wrapping.id if self.wrapping else ""

    def read_again(self) -> None:
        """Takes the wrapping key from its source anew, and wraps the store's keys with it."""
        self.wrapping = self.source.read()[0]
        self.save(self.keyring)

    def save(self, keyring: Keyring) -> None:
        """Writes the file of keys."""
        files.write(files.keys(self.path), self.wrapped(keyring))
        self.keyring = keyring

    def take(self, other: Lockbox) -> None:
        """Becomes like another one of the same store, whose file of keys is in place already."""
        self.keyring, self.vault = other.keyring, other.vault

    def wrapped(self, keyring: Keyring) -> bytes:
        """Returns what the file of these keys holds."""
        if self.wrapping is None:
            raise ServiceError.refused("NOT_ENCRYPTED", f"{self.path} is not encrypted, so it has no keys")
        return keyring.wrapped(self.wrapping)


def unlock(path: Path, wanted: Encryption) -> Lockbox | None:
    """Returns the keys of a store; None when there is neither a database nor keys, and there should be.

    Raises:
        ServiceError: The store is encrypted otherwise than wanted, its keys or its database is missing, or the key is
            not the one that wraps its keys. Nothing was written.
    """
    document, plain, there = keyring.read(files.keys(path)), is_plain(path), _is_there(path)
    if document is None:
        if wanted.mode == "off":
            return Lockbox(path, wanted.source, Keyring("off"), None)
        check_keys_are_there(path)
        if there:
            raise ServiceError.refused(
                "NOT_ENCRYPTED",
                f"{path} is not encrypted, but HIPPOVAULT_STORAGE_ENCRYPTION is {wanted.mode}; "
                f"to encrypt it, run: {command('encrypt')}",
            )
        return None
    found: str = document["mode"]
    if not there:
        raise ServiceError.refused(
            "DATABASE_MISSING",
            f"{files.keys(path)} has the keys of a database, but {path} is missing; "
            "restore it, or move the keys away to begin an empty one",
        )
    _check_mode(path, found, wanted)
    if plain != (found != "file"):
        raise ServiceError.refused(
            "OTHER_DATABASE", f"{path} is {'not ' if plain else ''}encrypted, other than {files.keys(path)} says"
        )
    wrapping = wanted.source.read()
    return Lockbox(path, wanted.source, Keyring.unwrapped(document, wrapping, files.keys(path)), wrapping[0])


def check_keys_are_there(path: Path) -> None:
    """Looks whether a database at rest that needs keys has them beside it.

    Raises:
        ServiceError: It has not.
    """
    if files.keys(path).exists() or not _is_there(path):
        return
    if not is_plain(path):
        raise _keys_missing(path)
    # With its log: a file into which a kill left the log half moved makes sense with that alone.
    with contextlib.closing(connect_as_left(path)) as connection:
        if label(connection):
            raise _keys_missing(path)


def check_label(connection: Connection, box: Lockbox) -> None:
    """Looks whether an open database is the one of the keys, before anything is written to it.

    Raises:
        ServiceError: It is another one, or needs keys that are missing.
    """
    found, expected = label(connection), box.keyring.label
    if found and not expected:
        raise _keys_missing(box.path)
    if found != expected:
        raise ServiceError.refused(
            "OTHER_DATABASE", f"{files.keys(box.path)} has the keys of another database than {box.path}"
        )


def label(connection: apsw.Connection) -> str:
    """Returns which keys a database says that it needs; "" for none."""
    if not query.value(connection, "SELECT EXISTS(SELECT 1 FROM sqlite_schema WHERE name = 'hippo_state')"):
        return ""
    return query.value(connection, "SELECT value FROM hippo_state WHERE name = ?", (LABEL,)) or ""


def write_label(connection: apsw.Connection, text: str) -> None:
    """Has a database say which keys it needs."""
    connection.execute("DELETE FROM hippo_state WHERE name = ?", (LABEL,))
    if text:
        connection.execute("INSERT INTO hippo_state (name, value) VALUES (?, ?)", (LABEL, text))


def mode(path: Path) -> Mode:
    """Returns what is encrypted, as the keys beside a database say."""
    document = keyring.read(files.keys(path))
    return document["mode"] if document else "off"


def is_plain(path: Path) -> bool:
    """Tells whether a file can be read as a database without any key."""
    if not _is_there(path):
        return False
    with path.open("rb") as file:
        return file.read(len(schema.MAGIC)) == schema.MAGIC


def _check_mode(path: Path, found: str, wanted: Encryption) -> None:
    if wanted.mode == "off":
        raise ServiceError.refused(
            "ENCRYPTED",
            f"{path} is encrypted; set HIPPOVAULT_STORAGE_ENCRYPTION={found} and its key, "
            f"or to decrypt it, then run: {command('decrypt')}",
        )
    if found != wanted.mode:
        raise ServiceError.refused(
            "OTHER_ENCRYPTION",
            f"{path} is encrypted with the mode {found}, but HIPPOVAULT_STORAGE_ENCRYPTION is {wanted.mode}; "
            f"set it to {found}, or to convert the store, run: {command('encrypt')}",
        )


def _is_there(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _keys_missing(path: Path) -> ServiceError:
    return ServiceError.refused(
        "KEYS_MISSING",
        f"{path} is encrypted or no database, and {files.keys(path)}, which would have its keys, is missing; "
        "put the copy from a backup in its place",
    )
