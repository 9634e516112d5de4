"""Encrypting and decrypting a store that nobody serves: a copy beside it, checked, takes its place whole."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import apsw
import grpc

from hippovault_chassis.commands import command
from hippovault_chassis.errors import ServiceError
from hippovault_storage.keyring import Keyring
from hippovault_storage.sqlite import (
    connections,
    creation,
    faults,
    files,
    identity,
    lockbox,
    query,
    records,
    replacing,
    schema,
    sealing,
    writes,
)
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.engine import open_writer
from hippovault_storage.sqlite.lockbox import Encryption, Lockbox
from hippovault_storage.sqlite.ownership import own
from hippovault_storage.sqlite.verifying import pages
from hippovault_storage.vault import Place, Value, Vault

MAX_TOLD = 20
"""Names or ids in an error."""

UNADOPTED = "SELECT id FROM memories WHERE id NOT IN (SELECT memory_id FROM hippo_memories)"
TAKEN = "SELECT EXISTS(SELECT 1 FROM memories WHERE content_hash = ? AND id <> ?)"


def convert(path: Path, dimensions: int, wanted: Encryption) -> None:
    """Makes a store one that is encrypted as wanted, or not at all.

    Whenever the process is killed, the store is whole, as it was or as it is wanted.

    Raises:
        ServiceError: Another process has the store; it is as wanted already, damaged, or has what the mode `values`
            would leave readable; a key is not the right one. The store is as it was.
        OSError: A file cannot be read or written, as on a full disk; the store is as it was.
    """
    with own(path), faults.told_at_open(path):
        box = _unlocked(path, wanted)
        wrapping = None if wanted.mode == "off" else wanted.source.read()[0]
        new = Lockbox(path, wanted.source, Keyring.new(wanted.mode), wrapping)
        with replacing.discarding(path):
            with contextlib.closing(open_writer(path, dimensions, box)) as source:
                if new.vault.seals:
                    _check_readable_rest(source, path, dimensions)
                copy = _converted(source, new)
            creation.take_place(new, copy)


def _unlocked(path: Path, wanted: Encryption) -> Lockbox:
    lockbox.check_keys_are_there(path)
    present = replace(wanted, mode=lockbox.mode(path))
    if not path.exists() and present.mode == "off":
        raise ServiceError.refused("NO_DATABASE", f"there is no {path} to convert")
    if present.mode == wanted.mode:
        raise ServiceError.refused(
            "ALREADY_SO", f"{path} is {'not encrypted' if wanted.mode == 'off' else 'encrypted so'} already"
        )
    box = lockbox.unlock(path, present)
    assert box is not None  # noqa: S101  # For the type alone: only a store that is to be encrypted may be absent.
    return box


def _check_readable_rest(source: Connection, path: Path, dimensions: int) -> None:
    """Looks whether all that tells a content would be sealed."""
    unadopted = query.column(source, UNADOPTED)
    if unadopted:
        raise ServiceError.refused(
            "NOT_OURS",
            f"{path}: {len(unadopted)} rows of the table memories are no memories and would stay readable, "
            f"ids {unadopted[:MAX_TOLD]}; delete them, or use the mode file",
        )
    names = schema.foreign_names(source, dimensions)
    if names:
        raise ServiceError.refused(
            "NOT_OURS",
            f"{path} has what another program made and what would stay readable: {', '.join(names[:MAX_TOLD])}; "
            "drop it, or use the mode file",
        )


def _converted(source: Connection, new: Lockbox) -> Path:
    """Returns a complete copy of the store under other keys."""
    copy = creation.begin_copy(new.path)
    _write_copy(source, copy, new.vault)
    with contextlib.closing(connections.connect_copy(copy, new.vault)) as target:
        query.rows(target, "PRAGMA journal_mode = OFF")
        if source.vault.seals != new.vault.seals:
            _seal(target, source.vault)
        lockbox.write_label(target, new.keyring.label)
        connections.give_number(target)
        _check(source, target, new.path)
        if not new.vault.seals:
            return copy
        # Sealing has left plaintext in the parts of pages that it gave up.
        final = creation.begin_copy(new.path)
        _write_copy(target, final, new.vault)
    files.remove(copy)
    return final


def _write_copy(source: Connection, copy: Path, vault: Vault) -> None:
    key = f"cipher={connections.FILE_CIPHER}&key=raw:{vault.file_key.hex()}" if vault.file_key else "key="
    try:
        source.execute("VACUUM INTO ?", (f"{copy.as_uri()}?{key}",))
    except apsw.CantOpenError:  # Its text has the name that it was given, and so the key.
        raise apsw.CantOpenError(f"unable to open {copy}") from None


def _seal(target: Connection, old: Vault) -> None:
    """Brings the values of a copy from another vault into its own."""
    new = target.vault

    def change(place: Place, column: str, value: Value, table: str) -> Value:
        text: object = old.open(place, column, value, table=table)
        # Metadata that another program wrote and that is no text is no metadata to us.
        return new.seal(place, column, text) if isinstance(text, str) else None

    for table in sealing.TABLES:
        sealing.seal_table(target, table, change)
    target.execute("DELETE FROM hippo_requests")  # Their digests are of the old vault, and nothing tells of what.
    last = records.BEFORE_ALL
    while ids := query.column(target, records.NEXT_IDS, (last, sealing.CHUNK)):
        memories = [records.memory(new, row) for row in records.rows(target, ids)]
        for memory in memories:
            _write_hashes(target, memory)
        writes.write_tags(target, memories)
        last = ids[-1]


def _write_hashes(target: Connection, memory: records.Memory) -> None:
    digest = target.vault.digest
    plain = identity.content_hash(memory.content)
    target.execute("UPDATE hippo_memories SET content_hash = ? WHERE memory_id = ?", (digest(plain), memory.id))
    if target.vault.seals:  # Whatever it is, as another program may have hashed otherwise.
        stored = str(query.value(target, "SELECT content_hash FROM memories WHERE id = ?", (memory.id,)))
        row_hash: str | None = digest(stored)
    else:
        candidates = identity.row_hashes(memory)
        row_hash = next((one for one in candidates if not query.value(target, TAKEN, (one, memory.id))), None)
    if row_hash:  # Else two rows have this content, and a digest in one of them does no harm.
        target.execute("UPDATE memories SET content_hash = ? WHERE id = ?", (row_hash, memory.id))


def _check(source: Connection, target: Connection, path: Path) -> None:
    """Looks whether the copy is whole."""
    problems = pages.damages(target)
    for table in schema.tables(source):
        if table not in {"hippo_state", "hippo_requests"} and _count(source, table) != _count(target, table):
            problems.append(f"the table {table} has another number of rows")
    if problems:
        raise ServiceError(
            grpc.StatusCode.DATA_LOSS,
            "CORRUPT",
            f"{path} cannot be converted, since its copy is not whole ({problems[0]}); "
            f"`{command('verify')}` tells more",
        )


def _count(connection: apsw.Connection, table: str) -> int:
    return int(query.value(connection, f"SELECT count(*) FROM {query.quoted(table)}"))
