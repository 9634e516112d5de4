"""`hippovault remember`: one text, or many from stdin."""

from __future__ import annotations

from hippovault_chassis.errors import ServiceError
from hippovault_gateway.arguments import RememberArguments
from hippovault_gateway.cli import inputs
from hippovault_gateway.cli.asking import ask
from hippovault_gateway.cli.inputs import NO_DETAILS, Details, Stdin
from hippovault_gateway.cli.options import WRITE_DEFAULTS, WriteOptions
from hippovault_gateway.cli.output import PENDING, TRUNCATED, show_json, show_line, warn
from hippovault_gateway.views import RememberView


def remember(
    content: str | None = None,
    /,
    *,
    stdin: Stdin = False,
    jsonl: bool = False,
    namespace: str = "",
    category: str = "",
    key: str = "",
    details: Details = NO_DETAILS,
    options: WriteOptions = WRITE_DEFAULTS,
) -> int:
    """Remembers a text, or with --jsonl many.

    Args:
        content: The text. Write -- before one that begins with a hyphen.
        stdin: Read the text from stdin instead, without the line break that ends it.
        jsonl: Read many from stdin, a JSON object a line, as import does from a file; each line says all of its memory.
        namespace: The memory's scope (default: "default").
        category: A group of your choice; with --key your own name for this memory.
        key: Remembering the same category and key again updates the memory; what it was stays in its history.
        details: What else it has.
        options: Which memory, and how to answer.

    Returns:
        1 when any of many failed.
    """
    if jsonl:
        given = (content, stdin, namespace, category, key, details, options.request_id)
        return _remember_many(options, alone=given == (None, False, "", "", "", NO_DETAILS, ""))
    values = {
        "content": _content(content, stdin=stdin),
        "namespace": namespace,
        "category": category,
        "key": key,
        **details.values(),
    }
    response = ask(lambda stub: stub.Remember, RememberArguments, values, options)
    view = RememberView.of(response)
    if options.json:
        show_json({**view.model_dump(), "windows": response.windows})
        return 0
    memory = view.memory
    show_line(f"{view.outcome}: memory {memory.id} in namespace {memory.namespace}, content_hash {memory.content_hash}")
    if memory.pending:
        warn(PENDING)
    if view.truncated:
        warn(TRUNCATED)
    return 0


def _content(given: str | None, *, stdin: bool) -> str:
    if given is not None and not stdin:
        return given
    if given is not None or not stdin:
        raise ServiceError.invalid("content", "give either the text, or - to read it from stdin")
    return inputs.from_stdin()


def _remember_many(options: WriteOptions, *, alone: bool) -> int:
    """Remembers every line of stdin; returns 1 when one failed."""
    from hippovault_gateway.cli import importing

    if not alone:
        raise ServiceError.invalid("jsonl", "every line says all of its memory; give no text and no option of one")
    return importing.remember_stdin(options)
