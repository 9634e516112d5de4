"""The files that belong to a database, and lie beside it."""

from __future__ import annotations

from pathlib import Path

from hippovault_chassis import durability

MODE = 0o600
LOG, INDEX, JOURNAL = "-wal", "-shm", "-journal"
NEW = ".new"
DATABASE, KEYS = ".db", ".keys"


def beside(path: Path, ending: str) -> Path:
    """Returns the file whose name is the database's with this ending."""
    return path.with_name(path.name + ending)


def has_log(path: Path) -> bool:
    """Tells whether there are changes that are not in the database yet."""
    log = beside(path, LOG)
    return log.exists() and log.stat().st_size > 0


def keys(path: Path) -> Path:
    """Returns the file of wrapped keys, there where the store is encrypted: x.keys of x.db, y.keys of a copy y."""
    return path.with_suffix(KEYS) if path.suffix == DATABASE else beside(path, KEYS)


def read_keys(path: Path) -> bytes:
    """Returns what is in the file of wrapped keys; b"" where there is none."""
    try:
        return keys(path).read_bytes()
    except FileNotFoundError:
        return b""


def remove(path: Path) -> None:
    """Removes a database and what SQLite put beside it."""
    for ending in ("", LOG, INDEX, JOURNAL):
        beside(path, ending).unlink(missing_ok=True)


def write(path: Path, data: bytes) -> None:
    """Writes a file whole: a reader finds its former contents or the new ones, which are on disk at the return."""
    new = beside(path, NEW)
    try:
        new.touch(MODE)
        new.write_bytes(data)
        durability.sync(new)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    new.replace(path)
    durability.sync(path.parent)
