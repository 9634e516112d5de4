"""Commands over a whole store while it is served: verify, reindex, rotate-key."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from hippovault.memory.v1.memory_service_pb2 import PingRequest
from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault.storage.v1 import storage_pb2
from hippovault.storage.v1.storage_pb2_grpc import StorageServiceStub
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli import client
from hippovault_gateway.cli.options import STORE_DEFAULTS, ClientOptions, StoreOptions
from hippovault_gateway.cli.output import counted, show_json, show_line, show_table
from hippovault_gateway.cli.progress import bar
from hippovault_gateway.cli.store import channel, connect

BACKFILL_SECONDS = 10.0
"""How long nothing may be embedded before it is given up to wait for the rest."""
PAUSE_SECONDS = 0.2


def verify(*, options: StoreOptions = STORE_DEFAULTS) -> int:
    """Looks the whole store over and changes nothing.

    Args:
        options: Which memory, and how to answer.

    Returns:
        1 when anything is wrong.
    """
    with connect(options) as stub:
        checks = list(stub.Verify(pb.VerifyRequest()))
    wrong = sum(check.wrong for check in checks)
    if options.json:
        documents = [
            {"check": one.check, "checked": one.checked, "wrong": one.wrong, "problems": list(one.problems)}
            for one in checks
        ]
        show_json({"wrong": wrong, "checks": documents})
    else:
        rows = ([one.check, one.checked, one.wrong, "\n".join(one.problems)] for one in checks)
        show_table(["check", "checked", "wrong", "problems"], rows)
        show_line(counted(wrong, "thing is wrong", "things are wrong") if wrong else "nothing is wrong")
    return 1 if wrong else 0


def reindex(*, options: StoreOptions = STORE_DEFAULTS) -> None:
    """Makes anew what is derived from the memories: words, tags, vector codes. The memory goes on serving.

    Waits for memories that are still to be embedded, as long as the gateway gets on with them.

    Args:
        options: Which memory, and how to answer.
    """
    last = pb.ReindexResponse()
    with connect(options) as stub, bar("reindex") as show:
        for last in stub.Reindex(pb.ReindexRequest()):
            show(last.done, last.total)
    with channel(options) as connected, bar("embed") as show:
        _wake_gateway(options)
        pending = _await_backfill(StorageServiceStub(connected), show)
    if options.json:
        show_json({"done": last.done, "total": last.total, "pending": pending})
        return
    show_line(f"reindexed: {last.done} of {last.total}")
    if pending:
        show_line(f"{counted(pending, 'memory', 'memories')} still to be embedded")


def _wake_gateway(options: StoreOptions) -> None:
    """Lets a gateway that runs look for pending memories now, and not within the next minute."""
    with suppress(ServiceError), client.connect(ClientOptions(home=options.home), patient=False) as gateway:
        gateway.call(gateway.stub.Ping, PingRequest())


def _await_backfill(stub: StorageServiceStub, show: Callable[[int, int | None], None]) -> int:
    """Waits while the gateway embeds pending memories; returns how many are left."""
    first = left = _pending(stub)
    ends = time.monotonic() + BACKFILL_SECONDS
    while left and time.monotonic() < ends:
        time.sleep(PAUSE_SECONDS)
        now = _pending(stub)
        if now < left:
            ends = time.monotonic() + BACKFILL_SECONDS
        left = now
        show(first - left, first)
    return left


def _pending(stub: StorageServiceStub) -> int:
    return stub.GetStats(storage_pb2.GetStatsRequest()).pending_memories


def rotate_key(*, data_key: bool = False, options: StoreOptions = STORE_DEFAULTS) -> None:
    """Wraps the key of an encrypted store with the first key that its source gives now. The memory goes on serving.

    The former key, on the source's second line, may go then; keep it elsewhere as long as backups made under it.

    Args:
        data_key: Make a new data key too, and encrypt everything with it.
        options: Which memory, and how to answer.
    """
    last = pb.RotateKeyResponse()
    with connect(options) as stub, bar("rotate-key") as show:
        for last in stub.RotateKey(pb.RotateKeyRequest(data_key=data_key)):
            show(last.done, last.total)
    if options.json:
        show_json({"key_id": last.key_id, "done": last.done, "total": last.total})
        return
    encrypted = f", {last.done} of {last.total} encrypted anew" if data_key else ""
    show_line(f"rotated: the data key is wrapped by {last.key_id}{encrypted}")
    show_line("the key's source needs no second line now; keep that key for backups that were made under it")
