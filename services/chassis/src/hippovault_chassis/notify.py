"""Readiness by the sd_notify protocol: one datagram to the socket that NOTIFY_SOCKET names.

systemd understands it, and so does `hippovault up`: a parent needs neither gRPC nor polling to learn that a child
serves.
"""

from __future__ import annotations

import contextlib
import os
import socket

VARIABLE = "NOTIFY_SOCKET"
SUPERVISED = "HIPPOVAULT_SUPERVISED"
"""Set by a parent that holds a child's stdin open: its end means that the parent is gone."""


def ready(status: str = "") -> None:
    """Tells the parent, where there is one, that this process serves.

    Args:
        status: Free text for people, such as the address.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    # A parent that is gone, or that reads no more, is no reason not to serve.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
        notifier.connect(address)
        notifier.sendall(f"READY=1\nMAINPID={os.getpid()}\nSTATUS={status}".encode())
