"""`python -m hippovault_storage.encrypt`: encrypts a store that is not served, as the settings say."""

from __future__ import annotations

import sys

import grpc

from hippovault_chassis import process
from hippovault_chassis.errors import ServiceError
from hippovault_storage.settings import StorageSettings
from hippovault_storage.sqlite import conversion


def main() -> None:
    """Encrypts the store of the settings, which are those of the service."""
    process.run("storage", StorageSettings, encrypt)


def encrypt(settings: StorageSettings) -> None:
    """Encrypts, and tells so on stdout.

    Raises:
        ServiceError: See `conversion.convert`; INVALID_ARGUMENT when the settings say that nothing is encrypted.
        OSError: See `conversion.convert`.
    """
    if settings.encryption == "off":
        raise ServiceError(
            grpc.StatusCode.INVALID_ARGUMENT,
            "NO_ENCRYPTION",
            "HIPPOVAULT_STORAGE_ENCRYPTION is off; set it to values or file, and its key",
        )
    conversion.convert(settings.database, settings.dimensions, settings.wanted_encryption)
    sys.stdout.write(f"{settings.database} is encrypted now, with the mode {settings.encryption}\n")


if __name__ == "__main__":
    main()
