"""`python -m hippovault_storage.decrypt`: makes an encrypted store that is not served one that is not encrypted."""

from __future__ import annotations

import sys

from hippovault_chassis import process
from hippovault_storage.settings import StorageSettings
from hippovault_storage.sqlite import conversion


def main() -> None:
    """Decrypts the store of the settings, which are those of the service; they name the key."""
    process.run("storage", StorageSettings, decrypt)


def decrypt(settings: StorageSettings) -> None:
    """Decrypts, and tells so on stdout.

    Raises:
        ServiceError: See `conversion.convert`.
        OSError: See `conversion.convert`.
    """
    conversion.convert(settings.database, settings.dimensions, settings.unencrypted)
    sys.stdout.write(
        f"{settings.database} is not encrypted now; take encryption and the key's source out of the table [storage] "
        "of hippovault.toml, or HIPPOVAULT_STORAGE_… out of the environment, before the next start\n"
    )


if __name__ == "__main__":
    main()
