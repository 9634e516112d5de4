"""kill -9 of the storage process while it writes: every acknowledged write is there afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import grpc

from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from hippovault_chassis.errors import ServiceError
from support.storage import Store, assert_whole, connected, database, near, serving, stub_of

ROUNDS = 12
WRITERS = 8
NAMESPACE = "killed"


def write(store: Store, number: int) -> bool:
    """Puts a memory, updates it, and deletes every third; returns whether it must live."""
    embedded, fields = near(number % 100 / 100), {"key": str(number), "tags": ["t"]}
    memory = store.add(f"draft {number}", embedded, **fields)
    store.add(f"memory {number}", embedded, **fields)
    if number % 3:
        return True
    store.delete_id(memory.id)
    return False


def write_until_killed(stub: StorageServiceStub, numbers: Iterator[int], enough: threading.Semaphore) -> list[str]:
    """Writes until the process is gone; returns what must be there."""
    store, acknowledged = Store(stub, NAMESPACE), []
    for number in numbers:
        try:
            lives = write(store, number)
        except grpc.RpcError as error:
            ended = ServiceError.from_rpc(error, "storage").code
            break
        acknowledged += [f"memory {number}"] * lives
        enough.release()
    assert ended is grpc.StatusCode.UNAVAILABLE
    return acknowledged


def test_no_acknowledged_write_is_lost(home: Path) -> None:
    numbers, acknowledged = count(), set[str]()
    for round_number in range(ROUNDS):
        enough = threading.Semaphore(0)
        with serving(home) as process, connected(process) as stub, ThreadPoolExecutor(WRITERS) as pool:
            running = [pool.submit(write_until_killed, stub, numbers, enough) for _ in range(WRITERS)]
            for _ in range(5 + 3 * round_number):  # Each round is killed at another moment.
                assert enough.acquire(timeout=30)
            process.kill()
            acknowledged.update(content for writer in running for content in writer.result())
    with stub_of(home) as stub:
        listed, token = set[str](), ""
        while True:
            page = Store(stub, NAMESPACE).page(1000, token, tags_all=["t"])
            listed.update(memory.content for memory in page.memories)
            token = page.next_page_token
            if not token:
                break
        assert acknowledged <= listed
        # What was not acknowledged may be there, but no more than what the writers had under way.
        unknown = {content for content in listed - acknowledged if content.startswith("memory")}
        assert len(unknown) <= ROUNDS * WRITERS
    assert_whole(database(home))
