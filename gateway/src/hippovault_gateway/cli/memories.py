"""Commands over single memories and their past: get, update, history, forget, undelete, purge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from hippovault_chassis.errors import ServiceError
from hippovault_chassis.memory_rules import DEFAULT_NAMESPACE
from hippovault_gateway.arguments import ForgetArguments
from hippovault_gateway.cli import inputs
from hippovault_gateway.cli.asking import ask
from hippovault_gateway.cli.inputs import BY_ID, NO_NEW_DETAILS, Naming, NewDetails, Stdin
from hippovault_gateway.cli.listing import preview, visibility, when
from hippovault_gateway.cli.options import CLIENT_DEFAULTS, WRITE_DEFAULTS, ClientOptions, WriteOptions
from hippovault_gateway.cli.output import PENDING, TRUNCATED, show_json, show_line, show_table, warn
from hippovault_gateway.entity_arguments import (
    CLEARABLE,
    GetArguments,
    HistoryArguments,
    PurgeArguments,
    UndeleteArguments,
    UpdateArguments,
)
from hippovault_gateway.entity_views import GetView, HistoryView, KeptView, PurgeView, UndeleteView, UpdateView
from hippovault_gateway.views import ForgetView

MAX_IDS_SHOWN = 100

Clearable = Annotated[list[str] | None, Parameter(negative=(), completer=lambda _context: list(CLEARABLE))]


def get(
    memory_id: int | None = None,
    /,
    *,
    naming: Naming = BY_ID,
    as_of: str | None = None,
    deleted: bool = False,
    all_states: bool = False,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Shows a memory as it is, or as it was; named by its id, its content hash, or its category and key.

    Args:
        memory_id: The memory's id.
        naming: Its other names.
        as_of: With the content that it had then, ISO 8601; also when it is deleted by now. Its other fields are as they
            were when that content ended, or are now; hints have no past.
        deleted: A deleted memory instead of a live one.
        all_states: A memory whether live or deleted.
        options: Which memory, and how to answer.
    """
    seen = visibility(deleted=deleted, all_states=all_states)
    values = {**naming.values(memory_id), "as_of": as_of, "visibility": seen}
    view = GetView.of(ask(lambda stub: stub.GetMemory, GetArguments, values, options))
    if options.json:
        show_json(view.model_dump())
    else:
        _show(view.memory)


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
    clear: Clearable = None,
    expected_version: int | None = None,
    dry_run: bool = False,
    options: WriteOptions = WRITE_DEFAULTS,
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
    values = {
        **naming.values(memory_id),
        "content": inputs.from_stdin() if stdin else content,
        "new_category": new_category,
        "new_key": new_key,
        **details.values(),
        "clear": clear,
        "expected_version": expected_version,
        "dry_run": dry_run,
    }
    view = UpdateView.of(ask(lambda stub: stub.UpdateMemory, UpdateArguments, values, options))
    if options.json:
        show_json({**view.model_dump(), "dry_run": dry_run})
        return
    memory = view.memory
    done = ("would update" if dry_run else "updated") if view.changed else "unchanged"
    show_line(f"{done}: memory {memory.id} in namespace {memory.namespace}, version {memory.version}")
    if memory.pending:
        warn(PENDING)
    if view.truncated:
        warn(TRUNCATED)


def history(
    memory_id: int | None = None,
    /,
    *,
    naming: Naming = BY_ID,
    limit: int | None = None,
    page_token: str = "",
    full: bool = False,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Lists the contents that a memory, live or deleted, has and had, newest first.

    A change of other fields makes no version: each stands as it was when that content ended, or is now.

    Args:
        memory_id: The memory's id.
        naming: Its other names.
        limit: Versions on a page, 1 to 100 (default: 20).
        page_token: The token that the page before ended with.
        full: Show contents whole; otherwise long ones are cut in the table, never in JSON.
        options: Which memory, and how to answer.
    """
    values = {**naming.values(memory_id), "limit": limit, "page_token": page_token}
    view = HistoryView.of(ask(lambda stub: stub.ListMemoryVersions, HistoryArguments, values, options))
    if options.json:
        show_json(view.model_dump())
        return
    rows = (
        [one.memory.version, when(one.since), when(one.until), preview(one.memory.content, full=full)]
        for one in view.versions
    )
    show_table(["version", "since (UTC)", "until (UTC)", "content"], rows)
    if view.next_page_token:
        show_line(f"more: --page-token {view.next_page_token}")


def forget(
    memory_id: int | None = None,
    /,
    *,
    naming: Naming = BY_ID,
    dry_run: bool = False,
    options: WriteOptions = WRITE_DEFAULTS,
) -> None:
    """Forgets a memory, named by its id, its content hash, or its category and key. Remembering it brings it back.

    Args:
        memory_id: The memory's id.
        naming: Its other names.
        dry_run: Only tell what would be forgotten.
        options: Which memory, and how to answer.
    """
    values = {**naming.values(memory_id), "dry_run": dry_run}
    view = ForgetView.of(ask(lambda stub: stub.Forget, ForgetArguments, values, options))
    if options.json:
        show_json(view.model_dump())
    else:
        show_line(f"{'would forget' if view.dry_run else 'forgot'}: {_ids(view.ids, view.deleted)}")


def undelete(
    memory_id: int | None = None,
    /,
    *,
    naming: Naming = BY_ID,
    dry_run: bool = False,
    options: WriteOptions = WRITE_DEFAULTS,
) -> None:
    """Brings a forgotten memory back as it was, named by its id, its content hash, or its category and key.

    Args:
        memory_id: The memory's id.
        naming: Its other names.
        dry_run: Only tell what would come back.
        options: Which memory, and how to answer.
    """
    values = {**naming.values(memory_id), "dry_run": dry_run}
    view = UndeleteView.of(ask(lambda stub: stub.Undelete, UndeleteArguments, values, options))
    if options.json:
        show_json(view.model_dump())
    else:
        show_line(f"{'would bring back' if view.dry_run else 'brought back'}: {_ids(view.ids, view.undeleted)}")


def purge(
    memory_id: int | None = None,
    /,
    *,
    naming: Naming = BY_ID,
    deleted_before: str | None = None,
    dry_run: bool = False,
    yes: bool = False,
    options: WriteOptions = WRITE_DEFAULTS,
) -> None:
    """Erases memories with their history, vectors and words, for good.

    One, live or deleted, is named by its id, its content hash, or its category and key.

    Args:
        memory_id: The memory's id.
        naming: Its other names.
        deleted_before: Erase all of the namespace, and of no other, that were deleted before this time, ISO 8601.
        dry_run: Only tell what would be erased.
        yes: Really erase: nothing brings back what is erased.
        options: Which memory, and how to answer.
    """
    if not (yes or dry_run):
        raise ServiceError.invalid("yes", "what is erased cannot be brought back; give --yes, or --dry-run to see it")
    values = {**naming.values(memory_id), "deleted_before": deleted_before, "dry_run": dry_run}
    view = PurgeView.of(ask(lambda stub: stub.Purge, PurgeArguments, values, options))
    if options.json:
        show_json(view.model_dump())
        return
    done = "would erase" if view.dry_run else "erased"
    show_line(f"{done} in namespace {naming.namespace or DEFAULT_NAMESPACE}: {_ids(view.ids, view.purged)}")


def _ids(ids: Sequence[int], total: int) -> str:
    shown = ", ".join(str(number) for number in ids[:MAX_IDS_SHOWN])
    return f"{shown}, … ({total})" if total > MAX_IDS_SHOWN else shown or "nothing"


def _show(memory: KeptView) -> None:
    """Prints the members that are not empty, and the content below."""
    members = memory.model_dump(exclude={"content", "surprise"})
    members["surprise"] = memory.surprise.score if memory.surprise else None
    rows = [
        (name.replace("_", " "), _text(value))
        for name, value in members.items()
        if value is not False and value not in ("", None, [], {})
    ]
    show_table(["member", "value"], rows)
    show_line(memory.content)


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
