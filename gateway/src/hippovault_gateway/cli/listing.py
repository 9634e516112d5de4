"""`hippovault list`, and memories as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli import inputs
from hippovault_gateway.cli.client import connect
from hippovault_gateway.cli.inputs import Names, Tags
from hippovault_gateway.cli.options import CLIENT_DEFAULTS, ClientOptions
from hippovault_gateway.cli.output import counted, show_json, show_line, show_table
from hippovault_gateway.documents import parse
from hippovault_gateway.entity_arguments import ScanArguments
from hippovault_gateway.entity_views import ScanView
from hippovault_gateway.views import MemoryView

PREVIEW_CHARACTERS = 300
"""Of a content in a table."""


def list_memories(
    *,
    namespace: str = "",
    limit: int | None = None,
    page_token: str = "",
    tags: Tags = None,
    tags_all: Names = None,
    memory_type: str = "",
    category: Names = None,
    status: Names = None,
    since: str | None = None,
    before: str | None = None,
    deleted: bool = False,
    all_states: bool = False,
    full: bool = False,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Lists memories, newest first.

    Args:
        namespace: Scope (default: "default").
        limit: Memories on a page, 1 to 100 (default: 20).
        page_token: The token that the page before ended with.
        tags: Only memories with any of these tags; may be repeated.
        tags_all: Only memories with all of these tags; may be repeated.
        memory_type: Only memories of this type.
        category: Only memories of this category; may be repeated.
        status: Only memories of this status; may be repeated.
        since: Only memories created at this time or later, ISO 8601.
        before: Only memories created before this time, ISO 8601.
        deleted: Deleted memories instead of live ones.
        all_states: Deleted memories as well as live ones.
        full: Show contents whole; otherwise long ones are cut in the table, never in JSON.
        options: Which memory, and how to answer.
    """
    if deleted and all_states:
        raise ServiceError.invalid("all_states", "means more than deleted; give one of them")
    values: dict[str, Any] = {
        "namespace": namespace,
        "limit": limit,
        "page_token": page_token,
        "tags": tags,
        "tags_all": tags_all,
        "memory_type": memory_type,
        "category": category,
        "status": status,
        "since": since,
        "before": before,
        "visibility": "all" if all_states else "deleted" if deleted else "live",
    }
    inputs.check_unicode(values)
    request = parse(ScanArguments, values).request()
    with connect(options) as client:
        view = ScanView.of(client.call(client.stub.ListMemories, request))
    if options.json:
        show_json(view.model_dump())
        return
    columns = ["deleted at (UTC)"] if deleted or all_states else []
    cells = [[when(memory.deleted_at)] if columns else [] for memory in view.memories]
    show_memories(view.memories, namespace, columns, cells, full=full)
    show_line(f"{len(view.memories)} of {counted(view.total, 'memory', 'memories')}")
    if view.next_page_token:
        show_line(f"more: --page-token {view.next_page_token}")


def show_memories(
    memories: Sequence[MemoryView],
    namespace: str,
    columns: Sequence[str],
    cells: Sequence[Sequence[Any]],
    *,
    full: bool,
) -> None:
    """Prints a table.

    Args:
        memories: A row each.
        namespace: Where they were looked for.
        columns: Further columns.
        cells: Of the further columns, for each memory.
        full: Whether long contents are whole.
    """
    if not memories:
        show_line(f"nothing found in namespace {namespace or memory_rules.DEFAULT_NAMESPACE}")
        return
    rows = (
        [memory.id, *extra, when(memory.created_at), ", ".join(memory.tags), preview(memory.content, full=full)]
        for memory, extra in zip(memories, cells, strict=True)
    )
    show_table(["id", *columns, "created at (UTC)", "tags", "content"], rows)


def when(time: str | None) -> str:
    """Returns a time to the second, as tables show it; "" for none."""
    return (time or "")[:19]


def preview(content: str, *, full: bool) -> str:
    """Returns as much of a content as a table shows."""
    return content if full or len(content) <= PREVIEW_CHARACTERS else f"{content[:PREVIEW_CHARACTERS]} …"
