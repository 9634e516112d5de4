"""The `hippovault` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command that this process's arguments name.

    Raises:
        SystemExit: Always; 0 for success, 1 for a failure, 2 for a command line that makes no sense.
    """
    if sys.argv[1:2] == ["mcp"]:
        # Every session starts one: without a parser it takes a third of the time and half of the memory.
        from hippovault_gateway.local import stdio_door

        plain = stdio_door.plain_arguments(sys.argv[2:])
        if plain:
            sys.exit(stdio_door.run(*plain))
    from hippovault_gateway.cli.app import run

    sys.exit(run(sys.argv[1:]))
