"""Settings of a process: flags, environment, `hippovault.toml` in its home, defaults; the first that has one wins."""

# Annotations are evaluated here and not kept as text: cyclopts resolves those of a subclass in the subclass's module,
# where these names are unknown.

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from cyclopts import App, CycloptsError, Parameter, Token
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Env, Toml

from hippovault_chassis.default_home import CONFIG_FILE, HOME_VARIABLE, default_home, given_home
from hippovault_chassis.home import Home

SettingsT = TypeVar("SettingsT", bound="ProcessSettings")

PROCESSES = ("embedding", "gateway", "storage")
COMMANDS = (
    "up",
    "down",
    "status",
    "doctor",
    "mcp",
    "connect",
    "completion",
    "remember",
    "recall",
    "get",
    "list",
    "summary",
    "update",
    "history",
    "forget",
    "undelete",
    "purge",
    "import",
    "export",
    "verify",
    "reindex",
    "rotate-key",
    "backup",
    "restore",
    "encrypt",
    "decrypt",
)
"""Of the command line. Every process knows them, to tell a table of theirs from a misspelt one of its own."""

LogLevel = Literal["debug", "info", "warning", "error"]


def _home(_: object, tokens: Sequence[Token]) -> Path:
    return Path(given_home(tokens[0].value))  # An empty one is none.


HomePath = Annotated[Path, Parameter(name="--home", env_var=HOME_VARIABLE, show_default=False, converter=_home)]


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """What every process can be told."""

    home: HomePath = field(default_factory=lambda: Path(default_home()))
    """Directory of all state (default: the XDG data directory's hippovault)."""
    log_level: Annotated[LogLevel, Parameter(env_var="HIPPOVAULT_LOG_LEVEL")] = "info"
    """Least severity that is logged."""

    listen: str = ""
    """Where to serve gRPC: `unix:/path` or a loopback `host:port` (default: a socket below home)."""
    metrics_listen: str = ""
    """Where to serve Prometheus metrics over HTTP: a loopback `host:port` (default: nowhere)."""

    @property
    def layout(self) -> Home:
        """The paths below home."""
        return Home(self.home.expanduser().absolute())

    def address(self, name: str) -> str:
        """Returns where the process of this name serves."""
        return self.listen or f"unix:{self.layout.socket(name)}"


def sources(prefix: str, *section: str, commands: bool = False) -> list[Any]:
    """Returns the configuration sources for `App(config=…)`, in order of precedence after flags.

    Args:
        prefix: What the names of environment variables start with.
        section: The table of the TOML file that applies.
        commands: Whether command names are part of variable names and of the table.
    """

    def toml(app: App, names: tuple[str, ...], arguments: ArgumentCollection) -> None:
        # The file lies in the home that flags or environment name, so it can only be found after those are read.
        path = _given_home(arguments) / CONFIG_FILE
        if not path.exists():  # To look for it in a circle of links is an error of the program to Toml.
            return
        file = Toml(path, root_keys=section, use_commands_as_keys=commands)
        try:
            _check_tables(file.config)
            file(app, names, arguments)
        except CycloptsError as error:
            if error.msg is not None and str(path) not in str(error.msg):
                error.msg = f"{path}: {error.msg}"
            raise

    return [Env(prefix, command=commands), toml]


def load(settings: type[SettingsT], section: str, argv: Sequence[str] | None = None) -> SettingsT:
    """Returns the settings of a process, from its command line and the sources below it.

    Args:
        settings: A frozen dataclass.
        section: The process: `HIPPOVAULT_<SECTION>_*` are its variables, `[section]` is its table.
        argv: The arguments; None means this process's own.

    Raises:
        SystemExit: `--help` was asked for, or a setting is wrong; what and why is on stderr.
    """
    app = App(
        name=f"hippovault-{section}",
        help=settings.__doc__,
        config=sources(f"HIPPOVAULT_{section.upper()}_", section),
        result_action="return_value",
    )

    def process(*, values: SettingsT = settings()) -> SettingsT:  # noqa: B008  # Frozen, and cyclopts wants one.
        return values

    process.__annotations__["values"] = Annotated[settings, Parameter(name="*")]
    app.default(process)
    loaded = app(argv)
    if not isinstance(loaded, settings):  # --help was shown.
        raise SystemExit(0)
    return loaded


def _check_tables(names: Iterable[str]) -> None:
    unknown = [name for name in names if name not in PROCESSES + COMMANDS]
    if unknown:
        known = f"its tables are {', '.join(PROCESSES)}, and of the commands {', '.join(COMMANDS)}"
        raise CycloptsError(msg=f"{unknown[0]!r} is no table that is known; {known}")


def _given_home(arguments: ArgumentCollection) -> Path:
    for argument in arguments:
        if argument.name == "--home" and argument.tokens:
            return Path(given_home(argument.tokens[0].value))
    return Path(given_home())
