"""Commands over single memories: remember, recall, list, forget."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from hippovault_chassis import memory_rules
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.arguments import ForgetArguments, ListArguments, RecallArguments
from hippovault_gateway.cli.client import connect
from hippovault_gateway.cli.options import CLIENT_DEFAULTS, ClientOptions
from hippovault_gateway.cli.output import show_json, show_line, show_table, warn
from hippovault_gateway.documents import MemoryInput, parse
from hippovault_gateway.views import ForgetView, ListView, MemoryView, RecallView, RememberView

PREVIEW_CHARACTERS = 300
"""Of a content in a table."""

Tags = Annotated[list[str] | None, Parameter(name=("--tags", "--tag"))]
Stdin = Annotated[bool, Parameter(name=("-", "--stdin"))]
Hints = Annotated[list[str] | None, Parameter(name=("--hints", "--hint"))]
ContentHash = Annotated[str, Parameter(name=("--content-hash", "--hash"))]


def remember(
    content: str | None = None,
    /,
    *,
    stdin: Stdin = False,
    namespace: str = "",
    category: str = "",
    key: str = "",
    tags: Tags = None,
    hints: Hints = None,
    memory_type: str = "",
    importance: float | None = None,
    metadata: str = "",
    created_at: str | None = None,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Remembers a text.

    Args:
        content: The text. Write -- before one that begins with a hyphen.
        stdin: Read the text from stdin instead, without the line break that ends it.
        namespace: The memory's scope (default: "default").
        category: A group of your choice; with --key your own name for this memory.
        key: Remembering the same category and key again updates the memory.
        tags: Labels to filter by; may be repeated.
        hints: Up to 3 wordings of questions that this memory answers; may be repeated.
        memory_type: Such as decision, observation, pattern.
        importance: 0 to 1.
        metadata: A JSON object of yours.
        created_at: When it happened, ISO 8601 (default: now).
        options: Which memory, and how to answer.
    """
    values: dict[str, Any] = {
        "content": _content(content, stdin=stdin),
        "namespace": namespace,
        "category": category,
        "key": key,
        "tags": tags,
        "hints": hints,
        "memory_type": memory_type,
        "importance": importance,
        "metadata": metadata,
        "created_at": created_at,
    }
    _check_unicode(values)
    memory_rules.metadata("metadata", metadata)
    values["metadata"] = json.loads(metadata or "{}")
    request = parse(MemoryInput, values).request()
    with connect(options) as client:
        view = RememberView.of(client.call(client.stub.Remember, request))
    if options.json:
        show_json(view.model_dump())
        return
    memory = view.memory
    show_line(f"{view.outcome}: memory {memory.id} in namespace {memory.namespace}, content_hash {memory.content_hash}")
    if view.truncated:
        warn("the text is longer than the model's window: its end is found by words, not by meaning")


def recall(
    query: str,
    /,
    *,
    namespace: str = "",
    limit: int | None = None,
    mode: str = "hybrid",
    no_surprise_boost: bool = False,
    oversample_factor: int | None = None,
    tags: Tags = None,
    memory_type: str = "",
    full: bool = False,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Finds the memories that answer a question, best first.

    Args:
        query: What to look for, in natural language.
        namespace: Scope (default: "default").
        limit: Hits wanted, 1 to 100 (default: 10).
        mode: By meaning (dense, semantic), by words (keyword) or both (hybrid, the default).
        no_surprise_boost: Rank by relevance alone.
        oversample_factor: Candidates fetched for each wanted hit, 1 to 100.
        tags: Only memories with any of these tags; may be repeated.
        memory_type: Only memories of this type.
        full: Show contents whole; otherwise long ones are cut in the table, never in JSON.
        options: Which memory, and how to answer.
    """
    values = {
        "query": query,
        "namespace": namespace,
        "limit": limit,
        "mode": mode,
        "no_surprise_boost": no_surprise_boost,
        "oversample_factor": oversample_factor,
        "tags": tags,
        "memory_type": memory_type,
    }
    _check_unicode(values)
    request = parse(RecallArguments, values).request()
    with connect(options) as client:
        view = RecallView.of(client.call(client.stub.Recall, request))
    if options.json:
        show_json(view.model_dump())
        return
    if view.degraded:
        warn(view.degraded)
    if view.omitted_hits:
        warn(f"{view.omitted_hits} hits were left off, since the answer would be too large")
    _show(view.hits, namespace, ["score"], [[f"{hit.score:.3f}"] for hit in view.hits], full=full)


def list_memories(
    *,
    namespace: str = "",
    limit: int | None = None,
    page_token: str = "",
    tags: Tags = None,
    memory_type: str = "",
    full: bool = False,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Lists memories, newest first.

    Args:
        namespace: Scope (default: "default").
        limit: Memories on a page, 1 to 100 (default: 20).
        page_token: The token that the page before ended with.
        tags: Only memories with any of these tags; may be repeated.
        memory_type: Only memories of this type.
        full: Show contents whole; otherwise long ones are cut in the table, never in JSON.
        options: Which memory, and how to answer.
    """
    values = {
        "namespace": namespace,
        "limit": limit,
        "page_token": page_token,
        "tags": tags,
        "memory_type": memory_type,
    }
    _check_unicode(values)
    request = parse(ListArguments, values).request()
    with connect(options) as client:
        view = ListView.of(client.call(client.stub.ListMemories, request))
    if options.json:
        show_json(view.model_dump())
        return
    _show(view.memories, namespace, [], [[] for _ in view.memories], full=full)
    show_line(f"{len(view.memories)} of {view.total} memories")
    if view.next_page_token:
        show_line(f"more: --page-token {view.next_page_token}")


def forget(
    memory_id: int | None = None,
    /,
    *,
    content_hash: ContentHash = "",
    category: str = "",
    key: str = "",
    namespace: str = "",
    dry_run: bool = False,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Forgets a memory, named by its id, its content hash, or its category and key. Remembering it brings it back.

    Args:
        memory_id: The memory's id.
        content_hash: Its content_hash.
        category: Its category, with --key.
        key: Its key.
        namespace: Scope (default: "default").
        dry_run: Only tell what would be forgotten.
        options: Which memory, and how to answer.
    """
    values = {
        "id": memory_id,
        "content_hash": content_hash,
        "category": category,
        "key": key,
        "namespace": namespace,
        "dry_run": dry_run,
    }
    _check_unicode(values)
    request = parse(ForgetArguments, values).request()
    with connect(options) as client:
        view = ForgetView.of(client.call(client.stub.Forget, request))
    if options.json:
        show_json(view.model_dump())
        return
    ids = ", ".join(str(number) for number in view.ids)
    show_line(f"{'would forget' if view.dry_run else 'forgot'}: {ids}")


def _check_unicode(values: Mapping[str, Any]) -> None:
    """Refuses words of the command line that were no UTF-8: they cannot be sent."""
    for name, value in values.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text):
                raise ServiceError.invalid(name, "must be UTF-8")


def _content(given: str | None, *, stdin: bool) -> str:
    if given is not None and not stdin:
        return given
    if given is not None or not stdin:
        raise ServiceError.invalid("content", "give either the text, or - to read it from stdin")
    try:
        content = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise ServiceError.invalid("content", f"is not UTF-8 at byte {error.start}") from None
    content = content.removesuffix("\n").removesuffix("\r")
    # Before it is sent: a request has its own limit, which would not name the field.
    memory_rules.text("content", content, memory_rules.MAX_CONTENT_BYTES, allowed=memory_rules.LINE_CONTROLS)
    return content


def _show(
    memories: Sequence[MemoryView],
    namespace: str,
    columns: Sequence[str],
    cells: Sequence[Sequence[Any]],
    *,
    full: bool,
) -> None:
    if not memories:
        show_line(f"nothing found in namespace {namespace or memory_rules.DEFAULT_NAMESPACE}")
        return
    rows = (
        [memory.id, *extra, memory.created_at[:19], ", ".join(memory.tags), _cell(memory.content, full=full)]
        for memory, extra in zip(memories, cells, strict=True)
    )
    show_table(["id", *columns, "created at (UTC)", "tags", "content"], rows)


def _cell(content: str, *, full: bool) -> str:
    return content if full or len(content) <= PREVIEW_CHARACTERS else f"{content[:PREVIEW_CHARACTERS]} …"
