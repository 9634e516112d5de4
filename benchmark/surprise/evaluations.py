"""The published evaluations, and the orders in which their memories are stored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmark.surprise import texts

SMALL, LARGE = 50, 500
"""Unrelated memories of a warm store."""


@dataclass(frozen=True)
class Item:
    """A memory, and the topic whose questions it answers; "" where it answers none."""

    text: str
    tags: tuple[str, ...] = ()
    importance: float | None = None
    age_days: int = 0
    answers: str = ""


@dataclass(frozen=True)
class Evaluation:
    """Memories in their published order, and questions, each with its topic.

    The measure is P@1 where a topic has one answer, and R@5 where it has more.
    """

    name: str
    items: list[Item]
    questions: list[tuple[str, str]]
    oversample_factor: int
    published: float | None
    """With the boost; None where no figure was."""
    predicts: bool = False
    """Whether the score has a prediction loss."""


def evaluations() -> Iterator[Evaluation]:
    """Yields A, B at four ages, C and D."""
    topics = [item for topic in texts.DECISIONS for item in _topic(topic, texts.CHATS[topic])]
    questions = [(question, topic) for topic, asked in texts.QUESTIONS.items() for question in asked]
    yield Evaluation("A, P@1", topics, questions, oversample_factor=6, published=1.0)
    aged = [(question, "auth") for question in texts.AGED_QUESTIONS]
    for days in (0, 30, 90, 365):
        items = _topic("auth", texts.AGED_CHATS, days)
        yield Evaluation(f"B, {days} days, P@1", items, aged, oversample_factor=50, published=1.0)
    cached = [(question, "cache") for question in texts.CACHE_QUESTIONS]
    yield Evaluation("C, R@5", list(_notes()), cached, oversample_factor=6, published=0.969)
    yield Evaluation("D, P@1", topics, questions, oversample_factor=6, published=None, predicts=True)


def _topic(topic: str, chats: list[str], age_days: int = 0) -> list[Item]:
    decision = Item(texts.DECISIONS[topic], (topic, "decision", "architecture"), 1.0, age_days, topic)
    return [decision, *(Item(chat, (topic,)) for chat in chats)]


def _notes() -> Iterator[Item]:
    for decision in texts.CACHE_DECISIONS:
        yield Item(decision, ("cache", "decision", "architecture"), 1.0, answers="cache")
    for kind, notes in texts.CACHE_NOTES.items():
        for note in notes:
            yield Item(note, (kind.lower(),), 0.3)


def orders(items: list[Item], seeds: int) -> dict[str, list[list[Item]]]:
    """Returns the memories as they are stored, by the name of the order; several times where it is drawn by chance."""
    return {
        "published order": [items],
        "shuffled": [random.Random(seed).sample(items, len(items)) for seed in range(seeds)],  # noqa: S311  # No secret.
        f"after {SMALL}": [[*map(Item, texts.unrelated(SMALL)), *items]],
        f"after {LARGE}": [[*map(Item, texts.unrelated(LARGE)), *items]],
    }
