"""Recall@k, MRR@10 and nDCG@10 with binary relevance."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

DEPTH = 10
CUTS = (1, 5, 10)
NORMAL_95 = 1.96


@dataclass(frozen=True)
class Scores:
    """Of one question, or the means of many."""

    recall: tuple[float, ...]
    """At each of CUTS."""
    mrr: float
    ndcg: float


def score(found: Sequence[str], relevant: frozenset[str], *, any_is_enough: bool) -> Scores:
    """Returns the scores of one ranking.

    Args:
        found: Keys, best first, at most DEPTH count.
        relevant: Keys of the answers.
        any_is_enough: Whether the first answer alone counts.
    """
    ranks = [rank for rank, key in enumerate(found[:DEPTH], 1) if key in relevant]
    wanted = 1 if any_is_enough else len(relevant)
    ranks = ranks[:wanted]
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(wanted, DEPTH) + 1))
    return Scores(
        recall=tuple(sum(rank <= cut for rank in ranks) / wanted for cut in CUTS),
        mrr=1 / ranks[0] if ranks else 0.0,
        ndcg=sum(1 / math.log2(rank + 1) for rank in ranks) / ideal,
    )


def mean(scores: Sequence[Scores]) -> Scores:
    """Returns the mean of each measure."""
    return Scores(
        recall=tuple(statistics.fmean(item.recall[index] for item in scores) for index in range(len(CUTS))),
        mrr=statistics.fmean(item.mrr for item in scores),
        ndcg=statistics.fmean(item.ndcg for item in scores),
    )


def half_width(scores: Sequence[Scores]) -> float:
    """Returns half the width of the 95 % interval of the mean nDCG, by the normal approximation."""
    return NORMAL_95 * statistics.stdev(item.ndcg for item in scores) / math.sqrt(len(scores))
