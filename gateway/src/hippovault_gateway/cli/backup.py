"""`hippovault backup`: a copy of the store as it is at one moment, in a new file that is whole or not there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import grpc

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault_chassis import durability
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli.options import STORE_DEFAULTS, StoreOptions
from hippovault_gateway.cli.output import counted, show_json, show_line
from hippovault_gateway.cli.progress import bar
from hippovault_gateway.cli.store import connect
from hippovault_gateway.views import iso

OWNER_ONLY = 0o600


def backup(target: Path = Path(), /, *, options: StoreOptions = STORE_DEFAULTS) -> None:
    """Copies the store into a new file, while it is served. That of an encrypted store stays encrypted.

    Args:
        target: The file, or a directory in which it gets a name of its own (default: the working directory).
        options: Which memory, and how to answer.
    """
    with connect(options) as stub:
        parts = stub.Backup(pb.BackupRequest())
        header = _header(parts)
        file = target / Path(header.name).name if target.is_dir() else target
        keys = file.with_name(f"{file.name}.keys") if header.keys else None
        sha256 = receive(parts, header, file, keys)
    if options.json:
        show_json(
            {
                "file": str(file),
                "keys": str(keys) if keys else None,
                "size_bytes": header.size_bytes,
                "sha256": sha256,
                "taken_at": iso(header.taken_at),
                "schema_version": header.schema_version,
                "encryption": header.encryption,
                "memories": header.memories,
            }
        )
        return
    memories = counted(header.memories, "memory", "memories")
    show_line(f"backed up: {memories} in {file}, {header.size_bytes} bytes, sha256 {sha256}")
    if keys:
        show_line(f"its keys: {keys}; they belong beside it, and are of use only with the key that wraps them")


def _header(parts: Iterator[pb.BackupResponse]) -> pb.BackupHeader:
    first = next(parts, None)
    if first is None or not first.HasField("header"):
        raise _broken("it did not begin with a header")
    return first.header


def receive(parts: Iterator[pb.BackupResponse], header: pb.BackupHeader, file: Path, keys: Path | None) -> str:
    """Writes the copy and its keys; both or none.

    Returns:
        The SHA-256 of the copy.

    Raises:
        ServiceError: What arrived is not what was sent, or a file is there already.
        OSError: A file cannot be written.
    """
    with new_file(file) as copy, ExitStack() as undo:
        if keys:
            with new_file(keys) as key_file:
                key_file.write(header.keys)
            undo.callback(keys.unlink)
        sha256 = _copy(parts, header.size_bytes, copy)
        undo.pop_all()
    return sha256


def _copy(parts: Iterator[pb.BackupResponse], size: int, copy: BinaryIO) -> str:
    digest, done, sent = hashlib.sha256(), 0, ""
    with bar("backup") as show:
        for part in parts:
            sent = part.trailer.sha256
            digest.update(part.chunk)
            copy.write(part.chunk)
            done += len(part.chunk)
            show(done, size)
    if not sent:
        raise _broken("it ended without a trailer")
    if (done, digest.hexdigest()) != (size, sent):
        raise _broken(f"{done} of {size} bytes arrived, sha256 {digest.hexdigest()}, not {sent}")
    return sent


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that is not there yet, for its owner alone.

    Under its name it is whole, and on disk, once the context ends; where that fails, it is gone.

    Raises:
        ServiceError: It is there already.
        OSError: It cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY))  # The name is ours from here on.
    except FileExistsError:
        problem = f"{path} exists already; name a new file"
        raise ServiceError(grpc.StatusCode.ALREADY_EXISTS, "FILE_EXISTS", problem) from None
    try:
        partial.unlink(missing_ok=True)  # Of a run that was killed.
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        durability.sync(path.parent)
    except BaseException as error:
        for left in (partial, path):
            left.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise


def _broken(problem: str) -> ServiceError:
    message = f"the backup did not arrive whole: {problem}; nothing of it is kept"
    return ServiceError(grpc.StatusCode.DATA_LOSS, "BACKUP_BROKEN", message)
