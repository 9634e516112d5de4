"""Structured logs: one JSON object a line on stderr; stdout belongs to protocols and to answers.

The message of an exception may quote a memory or a secret, so no log has it: only types and places.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger


def configure(service: str, level: str) -> None:
    """Sends structlog and the standard library's logging to stderr as JSON lines.

    Args:
        service: The process's name, a member of every line.
        level: debug, info, warning or error.
    """
    shared: list[structlog.typing.Processor] = [
        _without_messages,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        lambda _logger, _method, event: {"service": service, **event},
    ]
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)


def facts(error: BaseException) -> dict[str, Any]:
    """Returns what a log tells of an exception: its type and places, and those of what led to it."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop(0)
        if current is not None and current not in found:
            found.append(current)
            waiting += [current.__cause__, current.__context__, *getattr(current, "exceptions", ())]
    first, *causes = [{"type": type(each).__name__, "at": _places(each)} for each in found]
    return {**first, "causes": causes} if causes else first


def _places(error: BaseException) -> list[str]:
    places = []
    trace = error.__traceback__
    while trace:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename}:{trace.tb_lineno} {code.co_qualname}")
        trace = trace.tb_next
    return places


def _without_messages(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replaces the exception of an event by its facts, and a library's words about it by their place."""
    given = event.pop("exc_info", None)
    error = sys.exception() if given is True else given[1] if isinstance(given, tuple) else given
    if not isinstance(error, BaseException):
        return event
    record = event.get("_record")
    if record is not None:
        event["event"] = f"exception logged by {record.name} at {record.pathname}:{record.lineno}"
    return {**event, **facts(error)}
