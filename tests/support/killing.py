"""Ends a process with SIGKILL in the midst of its writing."""

from __future__ import annotations

import ctypes
import os
import select
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from hippovault_chassis.errors import ServiceError

IN_MODIFY, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x2, 0x80, 0x100, 0x200
CHANGES = IN_MODIFY | IN_MOVED_TO | IN_CREATE | IN_DELETE
EVENT_BYTES = 16 + 256
SECONDS = 60.0
START_SECONDS = 5.0
QUIET_SECONDS = 0.3
"""After so long without a change there is nothing left to interrupt. Whenever the kill comes, it is a fair one."""


@contextmanager
def killed_after(changes: int, directory: Path, popen: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kills a process once it changed files of a directory so many times, or goes on no more, or the body has ended."""
    with _watched(directory) as descriptor:
        ended = os.pidfd_open(popen.pid)
        killer = threading.Thread(target=_kill_after, args=(changes, descriptor, ended, popen))
        killer.start()
        try:
            yield
        finally:
            popen.kill()
            killer.join()
            popen.wait(SECONDS)
            os.close(ended)


@contextmanager
def ends_with_the_process() -> Iterator[None]:
    """Lets the calls inside fail for that the process no longer answers, and for nothing else."""
    try:
        yield
    except grpc.RpcError as error:
        if ServiceError.from_rpc(error, "storage").code is not grpc.StatusCode.UNAVAILABLE:
            raise


@contextmanager
def _watched(directory: Path) -> Iterator[int]:
    """A descriptor from which changes of files in a directory can be read, by Linux's inotify."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init()
    try:
        watch = libc.inotify_add_watch(descriptor, bytes(directory), CHANGES)
        assert watch >= 0, os.strerror(ctypes.get_errno())
        yield descriptor
    finally:
        os.close(descriptor)


def _kill_after(changes: int, descriptor: int, ended: int, popen: subprocess.Popen[bytes]) -> None:
    patience = START_SECONDS
    for _ in range(changes):
        ready, _, _ = select.select([descriptor, ended], [], [], patience)
        if not ready or ended in ready:
            break
        os.read(descriptor, EVENT_BYTES)
        patience = QUIET_SECONDS
    popen.kill()
