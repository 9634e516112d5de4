"""`python -m hippovault_storage.check_key`: whether a start would get at the store's key. Changes nothing."""

from __future__ import annotations

import sys

from hippovault_chassis import commands, settings
from hippovault_chassis.errors import ServiceError, told
from hippovault_storage.settings import StorageSettings
from hippovault_storage.sqlite import lockbox


def main() -> None:
    """Takes the key where the service's settings say, and tries it on the store's keys.

    Raises:
        SystemExit: It does not open them; what and why is on stderr.
    """
    given = settings.load(StorageSettings, "storage")
    commands.belong_to(given.layout)
    try:
        box = lockbox.unlock(given.database, given.wanted_encryption)
    except (ServiceError, OSError) as error:
        sys.exit(f"hippovault-storage: {told(error)}")
    mode = box.keyring.mode if box else given.encryption
    sys.stdout.write("not encrypted\n" if mode == "off" else f"encrypted ({mode}), and the key opens it\n")


if __name__ == "__main__":
    main()
