"""A backup checked, and put in the store's place."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from hippovault_chassis import durability
from hippovault_chassis.commands import command
from hippovault_chassis.errors import ServiceError
from hippovault_storage import times
from hippovault_storage.sqlite import connections, faults, files, lockbox, query, replacing, schema, verifying
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.engine import open_writer
from hippovault_storage.sqlite.lockbox import Encryption, Lockbox
from hippovault_storage.sqlite.ownership import own

MAX_TOLD = 3
"""Problems in an error."""


@dataclass(frozen=True)
class Demands:
    """What a backup must be besides a database of this program.

    Args:
        sha256: Its SHA-256 in hexadecimal digits; "" for any.
        sound: Whether nothing in it may be wrong.
    """

    sha256: str = ""
    sound: bool = True


SOUND = Demands()


def restore(
    path: Path,
    backup: Path,
    dimensions: int,
    encryption: Encryption = lockbox.OFF,
    demands: Demands = SOUND,
) -> Path | None:
    """Puts a copy of the backup in the place of the store, which is kept.

    Args:
        path: The store's database; may be absent or damaged.
        backup: A database of this program; the file of wrapped keys of an encrypted one beside it, with the ending
            `.keys`.
        dimensions: Length of the vectors.
        encryption: How the store is to be encrypted, and so the backup must be.
        demands: What else the backup must be.

    Returns:
        What the former database is called now; None when there was none.

    Raises:
        ServiceError: Another process has the store; the backup is none, damaged, another one than demanded, or
            encrypted otherwise than told, or with another key; the store is as it was.
        OSError: A file cannot be read or written, as on a full disk; the store is as it was.
    """
    with own(path):
        # Where it really lies: what belongs to it lies beside it.
        return _restore(path, backup.resolve(), dimensions, encryption, demands)


def _restore(path: Path, backup: Path, dimensions: int, encryption: Encryption, demands: Demands) -> Path | None:
    _check_file(path, backup)
    mark = times.timestamp(times.now()).ToDatetime().strftime("%Y%m%dT%H%M%S%fZ")
    copy = files.beside(path, replacing.COPYING + mark)
    had_one = path.exists()
    try:
        _copy(backup, copy)
        with _naming(backup, copy, demands):
            _check_sha256(copy, demands.sha256)
            box = _check(copy, dimensions, encryption)
            if demands.sound:
                _check_contents(copy, dimensions, box)
        durability.sync(copy)
    except BaseException:
        files.remove(copy)
        files.keys(copy).unlink(missing_ok=True)
        raise
    replacing.replace(path, copy, mark)
    return files.beside(path, replacing.REPLACED + mark) if had_one else None


def _check_file(path: Path, backup: Path) -> None:
    if not backup.is_file():
        raise ServiceError.refused("NO_BACKUP", f"{backup} is not a file")
    if path.exists() and backup.samefile(path):
        raise ServiceError.refused("NO_BACKUP", f"{backup} is the store itself; name a backup of it")
    if not backup.stat().st_size:
        raise ServiceError.refused("NO_BACKUP", f"{backup} is empty")
    # What a restore kept has nobody in use; a kill may have left changes in its log.
    if files.has_log(backup) and not backup.name.startswith(path.name + replacing.REPLACED):
        log = files.beside(backup, files.LOG)
        raise ServiceError.refused(
            "NO_BACKUP", f"{backup} is no backup but a database in use: its last changes are in {log}"
        )


def _copy(backup: Path, copy: Path) -> None:
    parts = (
        (backup, copy),
        (files.beside(backup, files.LOG), files.beside(copy, files.LOG)),
        (files.beside(backup, files.KEYS), files.keys(copy)),
    )
    for source, target in parts:
        if source.exists():
            target.touch(files.MODE)
            shutil.copyfile(source, target)
            durability.sync(target)


@contextlib.contextmanager
def _naming(backup: Path, copy: Path, demands: Demands) -> Iterator[None]:
    """Has errors name the backup, which stays, where they would name its copy, and tell what to do about damage."""
    try:
        yield
    except ServiceError as error:
        message = faults.without_remedy(error.message).replace(str(copy), str(backup))
        if error.code is grpc.StatusCode.DATA_LOSS:
            message += "; take another backup"
            message += ", or this one as it is, with --accept-damage" if demands.sound else ", this one cannot be read"
        raise ServiceError(error.code, error.reason, message) from error


def _check_sha256(copy: Path, expected: str) -> None:
    if not expected:
        return
    with copy.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected.lower():
        raise ServiceError.refused("OTHER_BACKUP", f"{copy} has another SHA-256 than {expected}, {found}")


def _check(copy: Path, dimensions: int, encryption: Encryption) -> Lockbox:
    """Looks whether the copy is a store, makes it a file of its own, and returns its keys."""
    with faults.told_at_open(copy):
        _check_encryption(copy, encryption)
        box = lockbox.unlock(copy, encryption)
        assert box is not None  # noqa: S101  # For the type alone: only of a store that is not there it is None.
        if not box.vault.file_key:
            schema.check_file(copy)
        with contextlib.closing(connections.connect(copy, box.vault)) as connection:
            _check_tables(connection, copy, dimensions)
            lockbox.check_label(connection, box)
            query.rows(connection, "PRAGMA journal_mode = DELETE")
            connections.give_number(connection)
    return box


def _check_contents(copy: Path, dimensions: int, box: Lockbox) -> None:
    """Looks over what will be served, opened as at a start: what another program wrote is no damage."""
    with faults.told_at_open(copy), contextlib.closing(open_writer(copy, dimensions, box)) as connection:
        found = list(verifying.problems(connection, copy))
        if found:
            more = f"; and {len(found) - MAX_TOLD} more" if len(found) > MAX_TOLD else ""
            told = "; ".join(found[:MAX_TOLD])
            raise ServiceError(grpc.StatusCode.DATA_LOSS, "CORRUPT", f"{copy} is damaged ({told}{more})")
        query.rows(connection, "PRAGMA journal_mode = DELETE")


def _check_encryption(copy: Path, encryption: Encryption) -> None:
    mode = lockbox.mode(copy)
    if mode != encryption.mode and (mode != "off" or lockbox.is_plain(copy)):
        raise ServiceError.refused(
            "OTHER_ENCRYPTION",
            f"{copy} is {'not encrypted' if mode == 'off' else f'encrypted with the mode {mode}'}, but "
            f"HIPPOVAULT_STORAGE_ENCRYPTION is {encryption.mode}; set it to {mode} to restore this backup, and convert "
            f"the store afterwards, with `{command('encrypt')}` or `{command('decrypt')}`",
        )


def _check_tables(connection: Connection, copy: Path, dimensions: int) -> None:
    if not query.value(connection, "SELECT EXISTS(SELECT 1 FROM sqlite_schema WHERE name = 'memories')"):
        raise ServiceError.refused("NO_BACKUP", f"{copy} is a SQLite database, but has no table memories")
    schema.check(connection, copy, dimensions)
