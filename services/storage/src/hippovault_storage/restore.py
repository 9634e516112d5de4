"""`python -m hippovault_storage.restore FILE`: puts a backup in the place of a store that is not served."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from hippovault_chassis import process
from hippovault_storage.settings import StorageSettings
from hippovault_storage.sqlite import restoring

USAGE = "usage: python -m hippovault_storage.restore FILE [the storage service's settings]"


def main() -> None:
    """Restores the file that the first argument names; what follows are settings as the service has them."""
    if len(sys.argv) == 1 or sys.argv[1].startswith("-"):
        sys.exit(USAGE)
    backup = Path(sys.argv[1]).absolute()
    process.run("storage", StorageSettings, functools.partial(restore, backup), sys.argv[2:])


def restore(backup: Path, settings: StorageSettings) -> None:
    """Restores, and tells on stdout what became of the former store.

    Raises:
        ServiceError: See `restoring.restore`.
    """
    kept = restoring.restore(settings.database, backup, settings.dimensions, settings.wanted_encryption)
    sys.stdout.write(f"{settings.database} is now as in {backup}\n")
    if kept:
        sys.stdout.write(f"what it was is kept as {kept}\n")


if __name__ == "__main__":
    main()
