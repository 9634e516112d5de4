"""Where processes listen, and the guard over it."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import IO

import grpc

from hippovault_chassis.errors import ServiceError
from hippovault_chassis.home import TARGET_SYNTAX
from hippovault_chassis.locks import LockHeldError, lock_file

UNIX = "unix:"


def check_bind(field: str, address: str) -> None:
    """Refuses every bind that is neither a Unix socket nor loopback.

    Anything else would be open to the network without credentials: there are no tokens and no mTLS yet.

    Args:
        field: The setting's name, for the error.
        address: `unix:/path` or `host:port`, the host numeric or `localhost`.

    Raises:
        ServiceError: The address is malformed, or open to the network.
    """
    if address.startswith(UNIX):
        path = address.removeprefix(UNIX)
        if not Path(path).is_absolute():
            raise ServiceError.invalid(field, f"{address!r} needs an absolute path")
        if set(path) & TARGET_SYNTAX:
            raise ServiceError.invalid(field, f"{address!r} must not have any of {' '.join(sorted(TARGET_SYNTAX))}")
        return
    check_loopback(field, address)


def check_loopback(field: str, address: str) -> tuple[str, int]:
    """Splits `host:port`, and refuses one that the network can reach.

    Raises:
        ServiceError: The address is malformed, or open to the network.
    """
    host, port = split_host_port(field, address)
    if not is_loopback(host):
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "BIND_NOT_LOOPBACK",
            f"{field}: {address!r} is open to the network, which is refused without tokens or mTLS; "
            f"use a Unix socket or 127.0.0.1:{port}",
            field=field,
        )
    return host, port


def split_host_port(field: str, address: str) -> tuple[str, int]:
    """Splits `host:port` or `[v6]:port`.

    Raises:
        ServiceError: It is neither, or the port is not 0 to 65535.
    """
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    # gRPC takes `::1:80` for an address without a port.
    if ":" in host and not bracketed:
        raise ServiceError.invalid(field, f"{address!r} needs brackets around its IPv6 address, as in [::1]:80")
    host = host[1:-1] if bracketed else host
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004
        raise ServiceError.invalid(field, f"{address!r} is not host:port (port 0 to 65535)")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Tells whether the host can only mean this machine. Names are not resolved: a resolver may say anything."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def lock_socket(address: str) -> IO[str] | None:
    """Takes the lock that belongs to a Unix socket, so that no second server replaces the first one's socket.

    gRPC unlinks a socket that is there before it binds, whoever owns it.

    Returns:
        The lock, held until it is closed or the process ends; None for TCP.

    Raises:
        ServiceError: Another process serves this address.
    """
    if not address.startswith(UNIX):
        return None
    try:
        return lock_file(Path(address.removeprefix(UNIX)).with_suffix(".lock"), f"{address} is served")
    except LockHeldError as error:
        way_out = "stop a running memory by `hippovault down`, or choose another home by --home"
        raise ServiceError.refused("ALREADY_RUNNING", f"{error}; {way_out}") from None
