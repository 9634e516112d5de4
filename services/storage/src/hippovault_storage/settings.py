"""What the storage process can be told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from hippovault_chassis.settings import ProcessSettings
from hippovault_storage.keys import KeySource
from hippovault_storage.sqlite.dense.index import MIN_VECTORS
from hippovault_storage.sqlite.lockbox import Encryption
from hippovault_storage.vault import Mode

DATABASE = "memories.db"


@dataclass(frozen=True, kw_only=True)
class StorageSettings(ProcessSettings):
    """HippoVault's storage service: memories in SQLite, found by meaning and by words."""

    read_connections: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=64))] = 4
    """Reads that run at the same time; further ones wait."""
    dimensions: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=8192))] = 384
    """Length of the vectors. It is the model's, and fixed once the database is made."""
    index_min_vectors: Annotated[int, Parameter(validator=validators.Number(gte=1))] = MIN_VECTORS
    """Vectors from which on a namespace has a code index in memory, by which it is searched."""
    encryption: Mode = "off"
    """What is encrypted at rest: `values` (contents, tags, hints and metadata one by one) or `file` (everything)."""
    key_file: Path | None = None
    """File with the key, 32 bytes in base64; HIPPOVAULT_STORAGE_KEY may have the key itself instead."""
    key_command: str = ""
    """Command that prints the key, instead of a file."""

    @property
    def wanted_encryption(self) -> Encryption:
        """How the store is to be encrypted, and where the key for it is read."""
        key_file = self.key_file.expanduser() if self.key_file else None
        return Encryption(self.encryption, KeySource(key_file, self.key_command))

    @property
    def unencrypted(self) -> Encryption:
        """The same, for a store that is not to be encrypted any more."""
        return replace(self.wanted_encryption, mode="off")

    @property
    def database(self) -> Path:
        """The file that has the memories, where it really lies: what belongs to it lies beside it."""
        return (self.layout.data / DATABASE).resolve()
