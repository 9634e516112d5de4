"""Failures of a command, brought to one form."""

from __future__ import annotations

from hippovault_gateway.local.child import StartError


def expected() -> tuple[type[Exception], ...]:
    """Returns the exceptions that tell people what went wrong; all others are faults of the program.

    A function, since it is called only once something was raised: what it imports is dear.
    """
    from hippovault_chassis.errors import ServiceError

    return ServiceError, StartError, OSError


def document(error: Exception) -> dict[str, str]:
    """Returns code, reason, message and field."""
    from hippovault_chassis.errors import ServiceError

    if isinstance(error, ServiceError):
        return _document(error.code.name, error.reason, error.message, error.field)
    if isinstance(error, StartError):
        return _document("UNAVAILABLE", "START_FAILED", str(error))
    return _document("UNKNOWN", "OS_ERROR", _told(error))


def _told(error: Exception) -> str:
    """Returns what is said of a failure, without the number that the system has for it."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror


def usage(problem: str, field: str) -> dict[str, str]:
    """Returns the form of a command line that makes no sense."""
    return _document("INVALID_ARGUMENT", "USAGE", problem, field)


def _document(code: str, reason: str, message: str, field: str = "") -> dict[str, str]:
    return {"code": code, "reason": reason, "message": message, "field": field}
