"""`hippovault list`, and memories as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli.asking import ask
from hippovault_gateway.cli.inputs import EVERYTHING, Narrowing
from hippovault_gateway.cli.options import CLIENT_DEFAULTS, ClientOptions
from hippovault_gateway.cli.output import counted, show_json, show_line, show_nonempty
from hippovault_gateway.entity_arguments import ScanArguments
from hippovault_gateway.entity_views import ScanView
from hippovault_gateway.views import MemoryView

PREVIEW_CHARACTERS = 300
"""Of a content in a table."""


def list_memories(
    *,
    limit: int | None = None,
    page_token: str = "",
    skip: int | None = None,
    narrowing: Narrowing = EVERYTHING,
    deleted: bool = False,
    all_states: bool = False,
    full: bool = False,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Lists memories, newest first.

    Args:
        limit: Memories on a page, 1 to 100 (default: 20).
        page_token: The token that the page before ended with.
        skip: Memories to pass over first.
        narrowing: Which memories are listed at all.
        deleted: Deleted memories instead of live ones.
        all_states: Deleted memories as well as live ones.
        full: Show contents whole; otherwise long ones are cut in the table, never in JSON.
        options: Which memory, and how to answer.
    """
    values = {
        "limit": limit,
        "page_token": page_token,
        "skip": skip,
        "visibility": visibility(deleted=deleted, all_states=all_states),
        **narrowing.values(),
    }
    view = ScanView.of(ask(lambda stub: stub.ListMemories, ScanArguments, values, options))
    if options.json:
        show_json(view.model_dump())
        return
    extra = {"deleted at (UTC)": [when(memory.deleted_at) for memory in view.memories]}
    show_memories(view.memories, narrowing.namespace, extra, full=full)
    show_line(f"{len(view.memories)} of {counted(view.total, 'memory', 'memories')}")
    if view.next_page_token:
        show_line(f"more: --page-token {view.next_page_token}")


def visibility(*, deleted: bool, all_states: bool) -> str:
    """Returns the name of what two options ask for."""
    if deleted and all_states:
        raise ServiceError.invalid("all_states", "means more than deleted; give one of them")
    return "all" if all_states else "deleted" if deleted else "live"


def show_memories(
    memories: Sequence[MemoryView], namespace: str, extra: Mapping[str, Sequence[str]], *, full: bool
) -> None:
    """Prints a table.

    Args:
        memories: A row each.
        namespace: Where they were looked for.
        extra: Further columns by name, a cell for each memory.
        full: Whether long contents are whole.
    """
    if not memories:
        show_line(f"nothing found in namespace {namespace or memory_rules.DEFAULT_NAMESPACE}")
        return
    show_nonempty(
        {
            "id": [str(memory.id) for memory in memories],
            **extra,
            "pending": ["yes" if memory.pending else "" for memory in memories],
            "created at (UTC)": [when(memory.created_at) for memory in memories],
            "tags": [", ".join(memory.tags) for memory in memories],
            "content": [preview(memory.content, full=full) for memory in memories],
        }
    )


def when(time: str | None) -> str:
    """Returns a time to the second, as tables show it; "" for none."""
    return (time or "")[:19]


def preview(content: str, *, full: bool) -> str:
    """Returns as much of a content as a table shows."""
    return content if full or len(content) <= PREVIEW_CHARACTERS else f"{content[:PREVIEW_CHARACTERS]} …"
