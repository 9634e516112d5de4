"""Keeps a tool's answer within a number of bytes: contents become previews, and what is left off is counted."""

from __future__ import annotations

import json
from typing import Any

PREVIEW_BYTES = 200
"""Least of a content that is shown."""
CUT_BYTES = 60
"""What the members take that tell of a cut content."""
DETAILS = ("tags", "hints", "metadata", "memory_type", "status", "surprise")
"""Members that go before a whole memory does."""
LISTS = ("hits", "memories", "versions", "highlights", "ids")
"""Members of answers that may be long; the most important come first."""
COUNTS = {"by_type": "omitted_types", "top_tags": "omitted_tags", "tags": "omitted_tags"}
"""Members that count something by name, and where it is told how many names are left off."""
COUNTS_SHARE = 4
"""Which part of an answer each of them may take: a quarter."""
NOTE = "Cut: hippo_get_entity with the id and a larger max_bytes shows a memory whole."
SHODH_NOTE = "Cut: a larger max_bytes, or the resource memory://NAMESPACE/ID, shows a memory whole."
"""Where hippo_get_entity may not be known."""

Document = dict[str, Any]


def encoded(document: object) -> str:
    """Returns the JSON text of an answer."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def size(document: object) -> int:
    """Returns how many bytes an answer has, as UTF-8."""
    return len(encoded(document).encode())


def fit(document: Document, most: int, note: str = NOTE) -> int | None:
    """Shortens an answer that is too long, in place, and says so in it.

    Args:
        document: The answer.
        most: Bytes that it may have.
        note: What is said in it.

    Returns:
        How many items of a list are left, at least one, where some were left off at its end.
    """
    if size(document) <= most:
        return None
    document["note"] = note
    for part in (document, *document.values()):
        if isinstance(part, dict):
            _keep_commonest(part, most // COUNTS_SHARE)
    memories = _memories(document)
    least = PREVIEW_BYTES * len(memories)
    if _room(document, memories, most) < least:
        for memory in memories:
            _drop_details(memory)
    longest = _share([size(memory["content"]) for memory in memories], max(_room(document, memories, most), least))
    for memory in memories:
        _cut_content(memory, longest)
    return next((left for name in LISTS if (left := _leave_off(document, name, most)) is not None), None)


def omitted(document: Document) -> Document:
    """Returns the members that count what was left off of the lists."""
    return {counter: document[counter] for name in LISTS if (counter := _counter(name)) in document}


def _memories(document: Document) -> list[Document]:
    items = [item for name in LISTS for item in document.get(name, []) if isinstance(item, dict)]
    return [item.get("memory", item) for item in [*items, document] if "content" in item.get("memory", item)]


def _keep_commonest(part: Document, most: int) -> None:
    for name, counter in COUNTS.items():
        counts = part.get(name)
        if not isinstance(counts, dict) or size(counts) <= most:
            continue
        kept: dict[str, int] = {}
        room = most
        for one in sorted(counts, key=counts.__getitem__, reverse=True):
            room -= size({one: counts[one]})
            if room < 0:
                break
            kept[one] = counts[one]
        part[name] = kept
        part[counter] = len(counts) - len(kept)


def _room(document: Document, memories: list[Document], most: int) -> int:
    """Returns how many bytes are left for contents."""
    contents = sum(size(memory["content"]) for memory in memories)
    return most - (size(document) - contents) - CUT_BYTES * len(memories)


def _drop_details(memory: Document) -> None:
    dropped = [name for name in DETAILS if memory.pop(name, None) is not None]
    if dropped:
        memory["cut"] = dropped


def _share(lengths: list[int], room: int) -> int:
    """Returns the length to cut to, so that the sum is within the room and short ones stay whole."""
    ordered = sorted(lengths)
    for index, length in enumerate(ordered):
        share = room // (len(ordered) - index)
        if length > share:
            return share
        room -= length
    return max(lengths, default=0)


def _cut_content(memory: Document, longest: int) -> None:
    content = memory["content"]
    if size(content) <= longest:
        return
    memory["content"] = _beginning(content, longest)
    memory["content_bytes"] = len(content.encode())
    memory["cut"] = ["content", *memory.get("cut", [])]


def _beginning(text: str, most: int) -> str:
    """Returns the longest beginning whose JSON has so many bytes; a character is whole or absent."""
    low, high = 0, min(len(text), most)
    while low < high:
        middle = (low + high + 1) // 2
        if size(text[:middle]) <= most:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def _leave_off(document: Document, name: str, most: int) -> int | None:
    """Returns how many items are left, where some are left off."""
    items = document.get(name, [])
    if size(document) <= most or len(items) < 2:  # noqa: PLR2004  # The first one stays.
        return None
    counter = _counter(name)
    before = document.get(counter, 0)
    document[counter] = before + len(items)  # At least as long as what will stand there.
    over, left = size(document) - most, len(items)
    while over > 0 and left > 1:
        left -= 1
        over -= size(items[left]) + 1
    document[counter] = before + len(items) - left
    del items[left:]
    return left


def _counter(name: str) -> str:
    return f"omitted_{name}"
