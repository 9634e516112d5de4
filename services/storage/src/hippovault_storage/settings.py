"""What the storage process can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from hippovault_chassis.settings import ProcessSettings

DATABASE = "memories.db"


@dataclass(frozen=True, kw_only=True)
class StorageSettings(ProcessSettings):
    """HippoVault's storage service: memories in SQLite, found by meaning and by words."""

    read_connections: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=64))] = 4
    """Reads that run at the same time; further ones wait."""
    dimensions: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=8192))] = 384
    """Length of the vectors. It is the model's, and fixed once the database is made."""

    @property
    def database(self) -> Path:
        """The file that has the memories."""
        return self.layout.data / DATABASE
