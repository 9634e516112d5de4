"""`hippovault update`: fields of a memory, each set by an option or cleared."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hippovault_chassis.errors import ServiceError
from hippovault_gateway.cli import inputs
from hippovault_gateway.cli.client import connect
from hippovault_gateway.cli.inputs import BY_ID, NO_NEW_DETAILS, Names, Naming, NewDetails, Stdin
from hippovault_gateway.cli.options import CLIENT_DEFAULTS, ClientOptions
from hippovault_gateway.cli.output import TRUNCATED, show_json, show_line, warn
from hippovault_gateway.documents import parse
from hippovault_gateway.entity_arguments import UpdateArguments
from hippovault_gateway.entity_views import UpdateView


def update(
    memory_id: int | None = None,
    /,
    *,
    naming: Naming = BY_ID,
    content: str | None = None,
    stdin: Stdin = False,
    new_category: str | None = None,
    new_key: str | None = None,
    details: NewDetails = NO_NEW_DETAILS,
    clear: Names = None,
    expected_version: int | None = None,
    dry_run: bool = False,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Changes fields of a memory, named by its id, its content hash, or its category and key. The others stay.

    Args:
        memory_id: The memory's id.
        naming: Its other names.
        content: The new text.
        stdin: Read the new text from stdin, without the line break that ends it.
        new_category: The category that it gets.
        new_key: The key that it gets.
        details: What else it gets.
        clear: A field to empty: category, key, tags, hints, memory_type, importance, metadata, status; may be repeated.
        expected_version: Refuse unless the memory has this version, which counts contents, not changes of other fields.
        dry_run: Only tell what it would be.
        options: Which memory, and how to answer.
    """
    if stdin and content is not None:
        raise ServiceError.invalid("content", "give either the text, or - to read it from stdin")
    values: dict[str, Any] = {
        "id": memory_id,
        **asdict(naming),
        "content": inputs.from_stdin() if stdin else content,
        "new_category": new_category,
        "new_key": new_key,
        **asdict(details),
        "clear": clear,
        "expected_version": expected_version,
        "dry_run": dry_run,
    }
    inputs.check_unicode(values)
    values["metadata"] = inputs.metadata(details.metadata)
    request = parse(UpdateArguments, values).request()
    with connect(options) as client:
        view = UpdateView.of(client.call(client.stub.UpdateMemory, request))
    if options.json:
        show_json({**view.model_dump(), "dry_run": dry_run})
        return
    memory = view.memory
    done = ("would update" if dry_run else "updated") if view.changed else "unchanged"
    show_line(f"{done}: memory {memory.id} in namespace {memory.namespace}, version {memory.version}")
    if view.truncated:
        warn(TRUNCATED)
