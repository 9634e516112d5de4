"""Commands over single memories and their past: get, history, undelete, purge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from hippovault_chassis.errors import ServiceError
from hippovault_chassis.memory_rules import DEFAULT_NAMESPACE
from hippovault_gateway.cli import inputs
from hippovault_gateway.cli.client import connect
from hippovault_gateway.cli.inputs import BY_ID, Naming
from hippovault_gateway.cli.listing import preview, when
from hippovault_gateway.cli.options import CLIENT_DEFAULTS, ClientOptions
from hippovault_gateway.cli.output import show_json, show_line, show_table
from hippovault_gateway.documents import parse
from hippovault_gateway.entity_arguments import (
    GetArguments,
    HistoryArguments,
    PurgeArguments,
    UndeleteArguments,
)
from hippovault_gateway.entity_views import GetView, HistoryView, KeptView, PurgeView, UndeleteView

MAX_IDS_SHOWN = 100


def get(
    memory_id: int | None = None,
    /,
    *,
    naming: Naming = BY_ID,
    as_of: str | None = None,
    deleted: bool = False,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Shows a memory as it is, or as it was; named by its id, its content hash, or its category and key.

    Args:
        memory_id: The memory's id.
        naming: Its other names.
        as_of: With the content that it had then, ISO 8601; also when it is deleted by now. Its other fields are as they
            were when that content ended, or are now; hints have no past.
        deleted: A deleted memory instead of a live one.
        options: Which memory, and how to answer.
    """
    values = {
        "id": memory_id,
        **asdict(naming),
        "as_of": as_of,
        "visibility": "deleted" if deleted else "live",
    }
    inputs.check_unicode(values)
    request = parse(GetArguments, values).request()
    with connect(options) as client:
        view = GetView.of(client.call(client.stub.GetMemory, request))
    if options.json:
        show_json(view.model_dump())
        return
    _show(view.memory)


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
    values = {
        "id": memory_id,
        **asdict(naming),
        "limit": limit,
        "page_token": page_token,
    }
    inputs.check_unicode(values)
    request = parse(HistoryArguments, values).request()
    with connect(options) as client:
        view = HistoryView.of(client.call(client.stub.ListMemoryVersions, request))
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


def undelete(
    memory_id: int | None = None,
    /,
    *,
    naming: Naming = BY_ID,
    dry_run: bool = False,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Brings a forgotten memory back as it was, named by its id, its content hash, or its category and key.

    Args:
        memory_id: The memory's id.
        naming: Its other names.
        dry_run: Only tell what would come back.
        options: Which memory, and how to answer.
    """
    values = {
        "id": memory_id,
        **asdict(naming),
        "dry_run": dry_run,
    }
    inputs.check_unicode(values)
    request = parse(UndeleteArguments, values).request()
    with connect(options) as client:
        view = UndeleteView.of(client.call(client.stub.Undelete, request))
    if options.json:
        show_json(view.model_dump())
        return
    show_line(f"{'would bring back' if view.dry_run else 'brought back'}: {_ids(view.ids, view.undeleted)}")


def purge(
    memory_id: int | None = None,
    /,
    *,
    naming: Naming = BY_ID,
    deleted_before: str | None = None,
    dry_run: bool = False,
    yes: bool = False,
    options: ClientOptions = CLIENT_DEFAULTS,
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
    values = {
        "id": memory_id,
        **asdict(naming),
        "deleted_before": deleted_before,
        "dry_run": dry_run,
    }
    inputs.check_unicode(values)
    request = parse(PurgeArguments, values).request()
    if not (yes or dry_run):
        raise ServiceError.invalid("yes", "what is erased cannot be brought back; give --yes, or --dry-run to see it")
    with connect(options) as client:
        view = PurgeView.of(client.call(client.stub.Purge, request))
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
        (name.replace("_", " "), _text(value)) for name, value in members.items() if value not in ("", None, [], {})
    ]
    show_table(["member", "value"], rows)
    show_line(memory.content)


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
