"""How many calls are taken on at a time.

Reads and writes that wait hold a thread of the server each. Both kinds together never hold all of them, so neither
kind's flood stops the other, and a call too many is refused at once.
"""

from __future__ import annotations

import threading

from hippovault_chassis.admission import RETRY_SECONDS
from hippovault_chassis.errors import ServiceError

MAX_WRITES = 96
MAX_READS = 128
MAX_STREAMS = 16
"""Of puts. Each holds a thread while it lasts, but a place among the writes only while it writes."""
SPARE_THREADS = 32
"""For what is neither, and for refusals."""
THREADS = MAX_WRITES + MAX_READS + MAX_STREAMS + SPARE_THREADS


class Places:
    """Places for calls of one kind, running or waiting.

    Args:
        number: Calls at a time.
        kind: `read` or `write`.
    """

    def __init__(self, number: int, kind: str) -> None:
        self._number = number
        self._kind = kind
        self._free = threading.BoundedSemaphore(number)

    def take(self) -> None:
        """Takes a place.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED when all are taken.
        """
        if not self._free.acquire(blocking=False):
            problem = f"{self._number} {self._kind}s are under way already"
            raise ServiceError.busy(f"TOO_MANY_{self._kind.upper()}S", problem, RETRY_SECONDS)

    def give_back(self) -> None:
        """Gives a place back."""
        self._free.release()
