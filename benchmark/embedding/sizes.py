"""How much is measured."""

# Annotations are evaluated here and not kept as text, as those of the processes' settings are.

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter, validators

Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]
Seconds = Annotated[float, Parameter(validator=validators.Number(gt=0))]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured."""

    queries: Positive = 200
    """Of each kind."""
    rate: Seconds = 6.0
    """Queries a second beside a bulk load."""
    callers: Positive = 32
    """At a time, in bulk."""
    documents: Positive = 200
    """Of each throughput."""
    rounds: Positive = 3
    """Measurements of each throughput, in turn."""
    idle: Seconds = 4.0
    """Seconds of which the processor time is measured."""
