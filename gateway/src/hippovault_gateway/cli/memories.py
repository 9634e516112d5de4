"""Commands that do what the tools do: remember, recall, forget."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hippovault_chassis.errors import ServiceError
from hippovault_gateway.arguments import ForgetArguments, RecallArguments, RememberArguments
from hippovault_gateway.cli import inputs
from hippovault_gateway.cli.client import connect
from hippovault_gateway.cli.inputs import BY_ID, NO_DETAILS, Details, Naming, Stdin, Tags
from hippovault_gateway.cli.listing import show_memories
from hippovault_gateway.cli.options import CLIENT_DEFAULTS, ClientOptions
from hippovault_gateway.cli.output import TRUNCATED, show_json, show_line, warn
from hippovault_gateway.documents import parse
from hippovault_gateway.views import ForgetView, RecallView, RememberView


def remember(
    content: str | None = None,
    /,
    *,
    stdin: Stdin = False,
    namespace: str = "",
    category: str = "",
    key: str = "",
    details: Details = NO_DETAILS,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Remembers a text.

    Args:
        content: The text. Write -- before one that begins with a hyphen.
        stdin: Read the text from stdin instead, without the line break that ends it.
        namespace: The memory's scope (default: "default").
        category: A group of your choice; with --key your own name for this memory.
        key: Remembering the same category and key again updates the memory; what it was stays in its history.
        details: What else it has.
        options: Which memory, and how to answer.
    """
    values: dict[str, Any] = {
        "content": _content(content, stdin=stdin),
        "namespace": namespace,
        "category": category,
        "key": key,
        **asdict(details),
    }
    inputs.check_unicode(values)
    values["metadata"] = inputs.metadata(details.metadata)
    request = parse(RememberArguments, values).request()
    with connect(options) as client:
        response = client.call(client.stub.Remember, request)
    view = RememberView.of(response)
    if options.json:
        show_json({**view.model_dump(), "windows": response.windows})
        return
    memory = view.memory
    show_line(f"{view.outcome}: memory {memory.id} in namespace {memory.namespace}, content_hash {memory.content_hash}")
    if view.truncated:
        warn(TRUNCATED)


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
    inputs.check_unicode(values)
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
    hinted = ["hint" in hit.matched_by for hit in view.hits]  # Seldom: few memories have hints.
    columns = ["score", "hint"] if any(hinted) else ["score"]
    cells = [[f"{hit.score:.3f}", "yes" if by_hint else ""] for hit, by_hint in zip(view.hits, hinted, strict=True)]
    show_memories(view.hits, namespace, columns, [row[: len(columns)] for row in cells], full=full)


def forget(
    memory_id: int | None = None,
    /,
    *,
    naming: Naming = BY_ID,
    dry_run: bool = False,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Forgets a memory, named by its id, its content hash, or its category and key. Remembering it brings it back.

    Args:
        memory_id: The memory's id.
        naming: Its other names.
        dry_run: Only tell what would be forgotten.
        options: Which memory, and how to answer.
    """
    values = {
        "id": memory_id,
        **asdict(naming),
        "dry_run": dry_run,
    }
    inputs.check_unicode(values)
    request = parse(ForgetArguments, values).request()
    with connect(options) as client:
        view = ForgetView.of(client.call(client.stub.Forget, request))
    if options.json:
        show_json(view.model_dump())
        return
    ids = ", ".join(str(number) for number in view.ids)
    show_line(f"{'would forget' if view.dry_run else 'forgot'}: {ids}")


def _content(given: str | None, *, stdin: bool) -> str:
    if given is not None and not stdin:
        return given
    if given is not None or not stdin:
        raise ServiceError.invalid("content", "give either the text, or - to read it from stdin")
    return inputs.from_stdin()
