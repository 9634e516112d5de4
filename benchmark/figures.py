"""What was measured, what it is compared with, and what it must be."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console
from rich.table import Table

ResultT = TypeVar("ResultT")

TABLE_WIDTH = 120
"""Of the printed table, whatever the terminal: the figures must not wrap."""

BLOCK = 20
"""What is compared is measured so many times on end, in turn: each finds the caches as it leaves them."""

WHOLE_FROM = 1000
"""Numbers from here on are told without a fraction."""


@dataclass(frozen=True)
class Bound:
    """What a figure may be."""

    limit: float
    at_least: bool = False

    def __str__(self) -> str:
        """As the table has it."""
        return f"{'≥' if self.at_least else '≤'} {self.limit:.3g}"

    def holds(self, value: float) -> bool:
        """Tells whether the value is within."""
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Figure:
    """One line of the table. The bound is of the ratio where there is a baseline, and else of the figure itself."""

    name: str
    measured: float
    unit: str = ""
    baseline: float | None = None
    bound: Bound | None = None

    @property
    def ratio(self) -> float | None:
        """What was measured, in units of the baseline."""
        return None if self.baseline is None else self.measured / self.baseline

    @property
    def verdict(self) -> str:
        """`met`, `missed`, or "" where there is no bound."""
        if self.bound is None:
            return ""
        return "met" if self.bound.holds(self.measured if self.ratio is None else self.ratio) else "missed"


def print_table(title: str, figures: Iterable[Figure]) -> None:
    """Prints one line a figure."""
    table = Table("figure", title=title)
    for column in ("measured", "baseline", "ratio", "bound"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("")
    for figure in figures:
        table.add_row(
            figure.name,
            _number(figure.measured, figure.unit),
            _number(figure.baseline, figure.unit),
            _number(figure.ratio),
            str(figure.bound or ""),
            figure.verdict,
        )
    Console(width=TABLE_WIDTH).print(table)


def as_json(figure: Figure) -> dict[str, object]:
    """Returns what the report has of a figure."""
    return {
        "figure": figure.name,
        "measured": figure.measured,
        "unit": figure.unit,
        "baseline": figure.baseline,
        "ratio": figure.ratio,
        "bound": str(figure.bound or ""),
        "verdict": figure.verdict,
    }


def timed(action: Callable[[], ResultT]) -> tuple[float, ResultT]:
    """Returns how many seconds the action takes, and its result."""
    started = time.perf_counter()
    result = action()
    return time.perf_counter() - started, result


def seconds(action: Callable[[], object]) -> float:
    """Returns how many seconds the action takes."""
    return timed(action)[0]


def medians(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Returns the median of each column: a round has one figure of each thing that is compared."""
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return ""
    digits = f"{value:,.0f}" if value >= WHOLE_FROM else f"{value:.3g}"
    return f"{digits} {unit}".rstrip()
