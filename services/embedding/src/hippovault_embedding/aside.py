"""What would hold up other calls is done beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

MANY_CHARACTERS = 1_000_000
"""Of all texts of a call: to look at so many takes a few milliseconds."""

ResultT = TypeVar("ResultT")


async def aside(texts: Sequence[str], function: Callable[[Sequence[str]], ResultT]) -> ResultT:
    """Returns what a function that looks at every character makes of texts: of many characters on a thread."""
    if sum(map(len, texts)) < MANY_CHARACTERS:
        return function(texts)
    return await asyncio.to_thread(function, texts)
