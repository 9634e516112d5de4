"""How fast a queue is worked off."""

from __future__ import annotations

import statistics
import time
from collections import deque

KEPT = 7
"""The newest batches, whose median counts: one that was slow, or three, change nothing."""
KNOWN_FROM = 3
BELIEVED_SECONDS = 30.0
"""How long what was measured counts. Whoever is refused by it measures nothing, so it must end by itself."""


class Speed:
    """Measured by the batches.

    Args:
        batches: That are computed at a time.
    """

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._newest: deque[float] = deque(maxlen=KEPT)
        self._measured = 0.0

    def note(self, tokens: int, seconds: float) -> None:
        """Takes in what a batch took."""
        self._newest.append(tokens / max(seconds, 1e-6))
        self._measured = time.monotonic()

    @property
    def tokens_a_second(self) -> float:
        """Of all batches that are computed at a time; 0 while it is not known."""
        if len(self._newest) < KNOWN_FROM or time.monotonic() - self._measured > BELIEVED_SECONDS:
            return 0.0
        return statistics.median(self._newest) * self._batches
