"""Processes of the benchmark's own, in a temporary home: the whole memory, or the storage service alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from hippovault_chassis import channels
from hippovault_storage.servicer import NAME as STORAGE

HIPPOVAULT = Path(sys.executable).parent / "hippovault"
READY_SECONDS = 600
STOP_SECONDS = 60
KIB = 1024


@contextmanager
def memory(variables: Mapping[str, str]) -> Iterator[str]:
    """Runs `hippovault up` while the context lasts.

    Args:
        variables: Environment of the processes, beside this one's.

    Yields:
        The gRPC target of MemoryService.
    """
    with tempfile.TemporaryDirectory(prefix="hv-") as directory:
        home = Path(directory) / "home"
        environment = {**os.environ, **variables, "HIPPOVAULT_HOME": str(home), "HIPPOVAULT_GATEWAY_HTTP": "off"}
        subprocess.run([HIPPOVAULT, "up", "--detach"], env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            yield f"unix:{home / 'run' / 'gateway.sock'}"
        finally:
            subprocess.run([HIPPOVAULT, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)


@dataclass(frozen=True)
class StorageProcess:
    """A storage process that serves."""

    stub: StorageServiceStub
    process_id: int

    def resident_bytes(self) -> int:
        """Returns the process's resident memory, pages of mapped files included; Linux alone tells it here."""
        lines = Path(f"/proc/{self.process_id}/status").read_text().splitlines()
        resident = next(line for line in lines if line.startswith("VmRSS:"))
        return int(resident.split()[1]) * KIB


@contextmanager
def storage(home: Path) -> Iterator[StorageProcess]:
    """Runs `python -m hippovault_storage` while the context lasts."""
    environment = {**os.environ, "HIPPOVAULT_HOME": str(home)}
    command = [sys.executable, "-m", "hippovault_storage"]
    with (home.parent / "storage.log").open("ab") as log:
        popen = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        with channels.sync(f"unix:{home / 'run' / 'storage.sock'}", STORAGE, ()) as channel:
            grpc.channel_ready_future(channel).result(READY_SECONDS)
            yield StorageProcess(StorageServiceStub(channel), popen.pid)
    finally:
        popen.terminate()
        popen.wait(STOP_SECONDS)
