"""The commands, and how a command line becomes a call, an answer and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from hippovault_chassis import settings
from hippovault_gateway.cli import failures, output
from hippovault_gateway.cli.options import DEFAULTS

FAILURE = 1
USAGE = 2
INTERRUPTED = 130
MAX_WORD = 100
"""Characters of a word of the command line that an error repeats."""

# By name, so that a command imports what it needs and no more.
COMMANDS = {
    "up": "lifecycle:up",
    "down": "lifecycle:down",
    "status": "lifecycle:status",
    "doctor": "doctor.command:doctor",
    "mcp": "lifecycle:mcp",
    "connect": "connecting.command:connect",
    "completion": "completion:completion",
    "remember": "remembering:remember",
    "recall": "recalling:recall",
    "get": "memories:get",
    "list": "listing:list_memories",
    "summary": "summary:summary",
    "update": "memories:update",
    "history": "memories:history",
    "forget": "memories:forget",
    "undelete": "memories:undelete",
    "purge": "memories:purge",
    "import": "importing:import_file",
    "export": "exporting:export",
    "verify": "maintenance:verify",
    "reindex": "maintenance:reindex",
    "rotate-key": "maintenance:rotate_key",
    "backup": "backup:backup",
    "restore": "offline:restore",
    "encrypt": "offline:encrypt",
    "decrypt": "offline:decrypt",
}

app = App(
    name="hippovault",
    help="Long-term memory for AI agents.\n\nEvery option can also be set by the environment variable "
    "HIPPOVAULT_COMMAND_OPTION, or in the table [command] of hippovault.toml in the memory's home. "
    "What they switch on, --option=false switches off.",
    version=lambda: version("hippovault-gateway"),
    config=settings.sources("HIPPOVAULT_", commands=True),
    default_parameter=Parameter(negative=(), show_default=False, show_env_var=False),
)
for _place, (_name, _function) in enumerate(COMMANDS.items()):
    app.command(f"hippovault_gateway.cli.{_function}", name=_name, sort_key=_place)


def run(arguments: Sequence[str]) -> int:
    """Runs one command.

    Returns:
        The exit code.
    """
    if not arguments or arguments[0] in app.help_flags:
        import_all()
    try:
        command, bound, _ = app.parse_args(list(arguments), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        error.verbose = False  # Else it would quote the whole command line, contents and all.
        output.fail(failures.usage(_problem(error), _field(error)), as_json="--json" in arguments)
        return USAGE
    except (OSError, TypeError) as error:
        # The parser stumbles over the error of a configuration file that cannot be read.
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError):
            raise
        output.fail(failures.document(cause), as_json="--json" in arguments)
        return FAILURE
    try:
        code = command(*bound.args, **bound.kwargs)
        sys.stdout.flush()
    except BrokenPipeError:  # Who reads stdout has seen enough; the interpreter must not flush into it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except KeyboardInterrupt:
        return INTERRUPTED
    except failures.expected() as error:
        output.fail(failures.document(error), as_json=bound.arguments.get("options", DEFAULTS).json)
        return FAILURE
    return code if isinstance(code, int) else 0


def import_all() -> None:
    """Imports every command, so that the overview has their descriptions."""
    for name in COMMANDS:
        app[name]


def _problem(error: CycloptsError) -> str:
    if not isinstance(error, UnusedCliTokensError):
        return str(error)
    [word, *_] = error.unused_tokens or [""]  # The others may be the rest of a content.
    return f"{word[:MAX_WORD]!r} is one word too many; write quotes around a text of several words"


def _field(error: CycloptsError) -> str:
    argument = getattr(error, "argument", None)
    return "" if argument is None else str(argument.name)
