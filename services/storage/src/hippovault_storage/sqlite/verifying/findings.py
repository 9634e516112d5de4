"""What a check finds."""

from __future__ import annotations

from hippovault.storage.v1 import maintenance_pb2 as pb

MAX_PROBLEMS = 20
"""Problems that one answer tells; all are counted."""


class Findings:
    """Gathers what one check finds.

    Args:
        check: Its name.
        remedy: What to do about what is wrong.
    """

    def __init__(self, check: str, remedy: str) -> None:
        self.answer = pb.VerifyResponse(check=check)
        self.problems: list[str] = []
        """What the answer tells, without the remedy."""
        self._remedy = remedy

    def looked_at(self, number: int) -> None:
        """Counts things that were looked at."""
        self.answer.checked += number

    def wrong(self, problem: str) -> None:
        """Counts one thing that is wrong; the text names ids and no contents."""
        self.answer.wrong += 1
        if self.answer.wrong <= MAX_PROBLEMS:
            self.problems.append(problem)
            self.answer.problems.append(f"{problem}; {self._remedy}")
