"""What can be seen without asking the memory: its files, its settings, the disk and the clock."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hippovault_chassis.default_home import CONFIG_FILE, HOME_VARIABLE
from hippovault_chassis.errors import ServiceError
from hippovault_chassis.locks import holder
from hippovault_gateway.cli.doctor.finding import Finding, fail, ok, warn
from hippovault_gateway.cli.doctor.patient import Patient
from hippovault_gateway.cli.output import counted

OTHERS = stat.S_IRWXG | stat.S_IRWXO
MEBIBYTE = 1024 * 1024
MIN_FREE_BYTES = 64 * MEBIBYTE
FUTURE_SECONDS = 60.0
"""By which a file may be newer than the clock says."""
FIRST_YEAR = 2025
DISTRIBUTIONS = ("chassis", "protos", "embedding", "storage", "gateway")
KEPT = ".replaced-"
CHILD_SECONDS = 45.0


def home(patient: Patient) -> Finding:
    """Looks whether the home is there, and its owner's alone."""
    root = patient.home.root
    if not root.exists():
        return warn(f"{root} is not there yet", f"start a memory: {patient.home.command('up --detach')}")
    if not root.is_dir() or root.stat().st_uid != os.getuid():
        problem = f"{root} is no directory of yours"
        return fail(problem, f"name another home by --home or {HOME_VARIABLE}, or run this as its owner")
    exposed = [path for path in _private(patient) if path.stat().st_mode & OTHERS]
    if exposed:
        problem = f"others have rights to {exposed[0]}" + (f" and {len(exposed) - 1} more" if len(exposed) > 1 else "")
        return fail(problem, f"chmod go-rwx {' '.join(shlex.quote(str(path)) for path in exposed)}")
    return ok(f"{root}, private")


def settings(patient: Patient) -> Finding:
    """Looks whether the gateway's settings make sense; those of storage are looked at with its key."""
    told = patient.settings
    file = told.layout.root / CONFIG_FILE
    return ok(f"of {file} and the environment" if file.exists() else "of the environment, or their defaults")


def sockets(patient: Patient) -> Finding:
    """Looks whether what listens is there, and whether the paths of sockets fit the system."""
    patient.home.socket("embedding")
    listening = {path.stem: _accepts(path) for path in _existing(patient.home.run, "*.sock")}
    live = sorted(name for name, accepts in listening.items() if accepts)
    wanted = set() if isinstance(patient.answer, ServiceError) else {"mcp"}
    missing = sorted(wanted - set(live))
    if missing:
        restart = f"{patient.home.command('down')} && {patient.home.command('up --detach')}"
        return fail(f"nobody listens at {patient.home.socket(missing[0])}", f"start the memory anew: {restart}")
    return ok(f"accepting: {', '.join(live)}" if live else "none, as nothing runs")


def disk(patient: Patient) -> Finding:
    """Looks whether there is room for more memories, and for a copy of those that there are."""
    there = next(path for path in (patient.home.data, *patient.home.data.parents) if path.exists())
    free = shutil.disk_usage(there).free
    size = sum(path.stat().st_size for path in _existing(patient.home.data, "memories.db*") if KEPT not in path.name)
    told = f"{free // MEBIBYTE} MiB are free, the store takes {size // MEBIBYTE} MiB"
    if free < MIN_FREE_BYTES:
        return fail(told, f"make room on the disk of {there}: writes fail when it is full")
    if free < size:
        return warn(told, f"make room on the disk of {there}: a backup, a restore or a conversion takes as much again")
    return ok(told)


def clock(patient: Patient) -> Finding:
    """Looks whether the clock is behind what it said before."""
    now = time.time()
    newest = max((path.stat().st_mtime for path in _existing(patient.home.data, "*")), default=0.0)
    remedy = "set the clock; memories are dated by it, and surprise decays by it"
    if time.gmtime(now).tm_year < FIRST_YEAR:
        return fail(f"it is the year {time.gmtime(now).tm_year}, says the clock", remedy)
    if newest > now + FUTURE_SECONDS:
        return fail(f"the clock is {newest - now:.0f} s behind the newest file of the store", remedy)
    return ok(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)))


def versions(patient: Patient) -> Finding:
    """Looks whether all parts are of one version, what runs too."""
    found = {name: _version(name) for name in DISTRIBUTIONS}
    if not isinstance(patient.answer, ServiceError):
        found["the running gateway"] = patient.answer.version
    told = ", ".join(f"{name} {number or 'missing'}" for name, number in found.items())
    if len(set(found.values())) == 1:
        return ok(f"all {found['gateway']}")
    if len({found[name] for name in DISTRIBUTIONS}) > 1:
        return fail(told, "install all distributions of one release: make setup")
    restart = f"{patient.home.command('down')} && {patient.home.command('up --detach')}"
    return fail(told, f"the running memory is of another release; start it anew: {restart}")


def leftovers(patient: Patient) -> Finding:
    """Looks for what a kill, a restore or a conversion left."""
    orphans = holder(patient.home.run / "children.lock") if patient.supervisor is None else None
    if orphans:
        return fail(
            f"processes of an earlier run still end, pid {orphans} started them", "wait a minute; else end them"
        )
    user = holder(patient.home.data / "memories.lock") if isinstance(patient.answer, ServiceError) else None
    if user and patient.supervisor is None:
        remedy = "wait until a restore or a conversion ends; end a storage process that nobody needs"
        return warn(f"process {user} has the store, while no memory runs", remedy)
    kept = [path for path in _existing(patient.home.data, "*") if KEPT in path.name]
    if kept:
        size = sum(path.stat().st_size for path in kept) // MEBIBYTE
        names = " ".join(shlex.quote(str(path)) for path in kept)
        return warn(
            f"{counted(len(kept), 'file')} of a store that was replaced, {size} MiB, which no purge reaches",
            f"once they are not needed: rm {names}",
        )
    return ok("none")


def key(patient: Patient) -> Finding:
    """Looks whether the next start gets at the store's key, which the storage package tries."""
    if not patient.home.root.is_dir():
        return ok("there is no store yet")
    command = [sys.executable, "-P", "-m", "hippovault_storage.check_key", "--home", str(patient.home.root)]
    ended = subprocess.run(  # noqa: S603  # Our own program.
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CHILD_SECONDS, check=False
    )
    if not ended.returncode:
        return ok(ended.stdout.strip())
    problem = " ".join(line.strip("│╭╮╰╯─ ") for line in ended.stderr.splitlines()).removeprefix("hippovault-storage: ")
    where = f"{patient.home.root / CONFIG_FILE}, table [storage], or HIPPOVAULT_STORAGE_… in the environment"
    return fail(problem.removeprefix("Error").strip(), f"put it right before the next start: {where}")


def _private(patient: Patient) -> Iterator[Path]:
    """Yields what must be its owner's alone; the root itself may be anyone's directory, but nobody else's to write."""
    root, ours = patient.home.root, (patient.home.data, patient.home.run, patient.home.logs)
    if root.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield root
    yield from (path for path in ours if path.is_dir())
    yield from (path for path in _existing(patient.home.data, "*") if path.is_file())


def _existing(directory: Path, pattern: str) -> list[Path]:
    """Returns the files of a directory, which may not be there; those that just go are left out."""
    return sorted(path for path in directory.glob(pattern) if path.exists())


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as tried, suppress(OSError):
        tried.settimeout(1)
        tried.connect(str(path))
        return True
    return False


def _version(name: str) -> str:
    try:
        return version(f"hippovault-{name}")
    except PackageNotFoundError:
        return ""
