"""A new file in a store's place, with its keys: the first one of an encrypted store, or one that replaces another."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

from hippovault_chassis import durability
from hippovault_storage.keyring import Keyring
from hippovault_storage.sqlite import files, lockbox, replacing, schema
from hippovault_storage.sqlite.connections import connect, prepare_writer
from hippovault_storage.sqlite.lockbox import Encryption, Lockbox


def create(path: Path, dimensions: int, wanted: Encryption) -> Lockbox:
    """Makes an empty store, encrypted from its first byte, and returns its keys."""
    box = Lockbox(path, wanted.source, Keyring.new(wanted.mode), wanted.source.read()[0])
    copy = begin_copy(path)
    with contextlib.closing(connect(copy, box.vault)) as connection:
        prepare_writer(connection, copy)
        schema.migrate(connection, dimensions)
        lockbox.write_label(connection, box.keyring.label)
    take_place(box, copy)
    return box


def begin_copy(path: Path) -> Path:
    """Returns an empty file beside the database, which disappears at the next opening if nothing comes of it."""
    copy = files.beside(path, f"{replacing.COPYING}{replacing.DISCARDING}{uuid.uuid4().hex}")
    copy.touch(files.MODE)
    return copy


def take_place(box: Lockbox, copy: Path) -> None:
    """Puts the copy in the place of the database, which nobody has open, and its keys in the place of the former ones.

    Whenever the process is killed, the store is whole: with the former file and keys, or with the new ones.
    """
    if box.keyring.label:
        files.write(files.beside(copy, files.KEYS), box.wrapped(box.keyring))
    durability.sync(copy)
    replacing.replace(box.path, copy, copy.name.removeprefix(box.path.name + replacing.COPYING))
