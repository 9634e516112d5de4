"""`python -m hippovault_storage.restore FILE`: puts a backup in the place of a store that is not served."""

from __future__ import annotations

import functools
import re
import sys
from argparse import ArgumentParser
from pathlib import Path

from hippovault_chassis import process
from hippovault_chassis.errors import ServiceError
from hippovault_storage.settings import StorageSettings
from hippovault_storage.sqlite import restoring
from hippovault_storage.sqlite.restoring import Demands

SHA256 = re.compile(r"([0-9a-fA-F]{64})?")


def main() -> None:
    """Restores the file that the first argument names; flags that are not restore's are settings of the service."""
    parser = ArgumentParser(prog="python -m hippovault_storage.restore", allow_abbrev=False)
    parser.add_argument("file", type=Path)
    parser.add_argument("--sha256", default="", help="the SHA-256 that the file must have")
    parser.add_argument("--accept-damage", action="store_true", help="take a file in which something is wrong")
    given, settings = parser.parse_known_args()
    demands = Demands(given.sha256, sound=not given.accept_damage)
    process.run("storage", StorageSettings, functools.partial(restore, given.file.absolute(), demands), settings)


def restore(backup: Path, demands: Demands, settings: StorageSettings) -> None:
    """Restores, and tells on stdout what became of the former store.

    Raises:
        ServiceError: See `restoring.restore`; INVALID_ARGUMENT when the SHA-256 is none.
    """
    if not SHA256.fullmatch(demands.sha256):
        raise ServiceError.invalid("sha256", "must be 64 hexadecimal digits, as backup told it")
    kept = restoring.restore(settings.database, backup, settings.dimensions, settings.wanted_encryption, demands)
    sys.stdout.write(f"{settings.database} is now as in {backup}\n")
    if kept:
        sys.stdout.write(f"what it was is kept as {kept}\n")


if __name__ == "__main__":
    main()
