"""Whether hints are accepted: a switch that is read at every call and decides about writes alone."""

from __future__ import annotations

import os

import grpc

from hippovault_chassis.errors import ServiceError

VARIABLE = "HIPPOVAULT_HINTS_ENABLED"
ALIAS = "PERSEUS_VAULT_HINTS_ENABLED"
ON = frozenset({"1", "true", "yes", "on"})


def is_open() -> bool:
    """Tells whether this process's environment has the switch on."""
    value = os.environ.get(VARIABLE, os.environ.get(ALIAS, ""))
    return value.strip().lower() in ON


def check() -> None:
    """Refuses, for a write that has hints.

    Raises:
        ServiceError: The switch is off. The write must not go on without its hints.
    """
    if not is_open():
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "HINTS_DISABLED",
            f"hints: are not accepted unless {VARIABLE} is 1, true, yes or on in the gateway's environment",
            field="hints",
        )
