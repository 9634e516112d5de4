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
    from hippovault_chassis.errors import ServiceError, told

    if isinstance(error, ServiceError):
        return _document(error.code.name, error.reason, error.message, error.field)
    if isinstance(error, StartError):
        return _document("UNAVAILABLE", "START_FAILED", str(error))
    return _document("UNKNOWN", "OS_ERROR", told(error))


def usage(problem: str, field: str) -> dict[str, str]:
    """Returns the form of a command line that makes no sense."""
    return _document("INVALID_ARGUMENT", "USAGE", problem, field)


def _document(code: str, reason: str, message: str, field: str = "") -> dict[str, str]:
    return {"code": code, "reason": reason, "message": message, "field": field}
