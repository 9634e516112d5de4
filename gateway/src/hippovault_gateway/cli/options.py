"""The options that all commands share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from hippovault_chassis.default_home import default_home, given_home
from hippovault_chassis.home import Home
from hippovault_chassis.settings import HomePath

MAX_SECONDS = 3600

Seconds = Annotated[float, Parameter(validator=validators.Number(gt=0, lte=MAX_SECONDS))]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """Which memory, and how to answer."""

    home: HomePath = field(default_factory=lambda: Path(default_home()))
    """Directory of the memory (default: the XDG data directory's hippovault)."""
    json: bool = False
    """Answer with one JSON document on stdout."""

    @property
    def layout(self) -> Home:
        """The paths below home."""
        return Home(Path(given_home(str(self.home))))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ClientOptions(Options):
    """Options of a command that asks the running memory."""

    timeout: Seconds = 30.0
    """Seconds that one request may take (default: 30)."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WriteOptions(ClientOptions):
    """Options of a command that changes memories."""

    request_id: str = ""
    """Your name for this write: for a day, repeating it under the same name does nothing, and is answered the same."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StoreOptions(Options):
    """Options of a command that asks the storage service itself. It takes the time that it takes."""

    storage: Annotated[str, Parameter(env_var="HIPPOVAULT_STORAGE_LISTEN")] = ""
    """gRPC target of the storage service (default: where the gateway finds it)."""


DEFAULTS = Options()
CLIENT_DEFAULTS = ClientOptions()
WRITE_DEFAULTS = WriteOptions()
STORE_DEFAULTS = StoreOptions()
