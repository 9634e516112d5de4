"""The command."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from hippovault_chassis.errors import ServiceError, told
from hippovault_gateway.cli.doctor import doors, machine, services
from hippovault_gateway.cli.doctor.finding import Finding, fail, warn
from hippovault_gateway.cli.doctor.patient import NotRunningError, Patient
from hippovault_gateway.cli.options import CLIENT_DEFAULTS, ClientOptions
from hippovault_gateway.cli.output import counted, show_json, show_line, show_table

CHECKS: dict[str, Callable[[Patient], Finding]] = {
    "home": machine.home,
    "settings": machine.settings,
    "disk": machine.disk,
    "clock": machine.clock,
    "key": machine.key,
    "leftovers": machine.leftovers,
    "processes": services.processes,
    "versions": machine.versions,
    "sockets": machine.sockets,
    "model": services.model,
    "store": services.store,
    "pending": services.pending,
    "hints": services.hints,
    "http": doors.http_door,
    "stdio": doors.stdio_door,
}
"""In the order in which they are told: what else rests on comes first."""


def doctor(*, options: ClientOptions = CLIENT_DEFAULTS) -> int:
    """Tells what is wrong with the memory, and what to do. Changes nothing, starts nothing.

    Args:
        options: Which memory, and how to answer.

    Returns:
        1 when a check failed.
    """
    patient = Patient(options)
    findings = [_found(name, check, patient) for name, check in CHECKS.items()]
    failed = sum(finding.state == "fail" for finding in findings)
    if options.json:
        show_json({"healthy": not failed, "checks": [finding.model_dump() for finding in findings]})
    else:
        _show(findings, failed)
    return 1 if failed else 0


def _found(name: str, check: Callable[[Patient], Finding], patient: Patient) -> Finding:
    """Returns what a check found; that it could not be made is a finding too."""
    try:
        finding = check(patient)
    except NotRunningError:
        finding = warn("not looked at, since the memory does not answer", "see the check of the processes")
    except ServiceError as error:
        finding = fail(error.message, f"put it right, and run again: {patient.home.command('doctor')}")
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = told(error) if isinstance(error, OSError) else f"no answer within {error.timeout:g} s"
        finding = fail(problem, f"put it right, and run again: {patient.home.command('doctor')}")
    return finding.model_copy(update={"check": name})


def _show(findings: list[Finding], failed: int) -> None:
    rows = (
        [one.state, one.check, one.detail + (f"\n→ {one.remedy}" if one.remedy else "")]  # The arrow marks what to do.
        for one in findings
    )
    show_table(["state", "check", "what was found, and what to do"], rows)
    warned = sum(finding.state == "warn" for finding in findings)
    show_line(f"{counted(len(findings), 'check')}: {failed} failed, {counted(warned, 'warning')}")
