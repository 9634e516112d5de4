"""Channels between processes: quick to reconnect, retrying what may be repeated."""

from __future__ import annotations

import json
from collections.abc import Iterable

import grpc

MAX_REQUEST_BYTES = 16 * 1024 * 1024
"""What a server takes."""
MAX_ANSWER_BYTES = 3 * 1024 * 1024
"""Of what makes an answer large: gRPC clients take 4 MiB of all unless they are told otherwise."""
UNLIMITED = -1


def options(service: str, retried: Iterable[str]) -> list[tuple[str, int | str]]:
    """Returns channel options.

    Args:
        service: Full name of the service, such as `hippovault.storage.v1.StorageService`.
        retried: Its idempotent methods: they are tried for about a second while the service is UNAVAILABLE.
    """
    retry = {
        "maxAttempts": 5,  # As many as gRPC allows: with these pauses about a second, in which a service restarts.
        "initialBackoff": "0.1s",
        "maxBackoff": "0.5s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    names = [{"service": service, "method": method} for method in retried]
    config = {"loadBalancingConfig": [{"round_robin": {}}], "methodConfig": [{"name": names, "retryPolicy": retry}]}
    return [
        ("grpc.service_config", json.dumps(config)),
        ("grpc.max_receive_message_length", UNLIMITED),
        ("grpc.max_send_message_length", UNLIMITED),
        # A service that was restarted is found again before the retries end, not after the default's two minutes.
        ("grpc.initial_reconnect_backoff_ms", 50),
        # Despite its name the time that one attempt to connect gets: a busy server is not a dead one.
        ("grpc.min_reconnect_backoff_ms", 5000),
        ("grpc.max_reconnect_backoff_ms", 200),
        # Two clients of one process must not share a broken connection's backoff.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
    ]


def aio(address: str, service: str, retried: Iterable[str]) -> grpc.aio.Channel:
    """Returns an asyncio channel; connecting waits for the first call."""
    return grpc.aio.insecure_channel(address, options=options(service, retried))


def sync(address: str, service: str, retried: Iterable[str]) -> grpc.Channel:
    """Returns a blocking channel; connecting waits for the first call."""
    return grpc.insecure_channel(address, options=options(service, retried))
