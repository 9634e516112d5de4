"""`hippovault completion`: what makes a shell complete the commands, their options and their values."""

from __future__ import annotations

from typing import Literal

from hippovault_gateway.cli.options import DEFAULTS, Options
from hippovault_gateway.cli.output import show_json, show_line


def completion(shell: Literal["bash", "zsh", "fish"], /, *, install: bool = False, options: Options = DEFAULTS) -> None:
    """Prints the completion script of a shell, or with --install puts it where that shell looks.

    Args:
        shell: The shell.
        install: Write it into your home, and into the shell's start-up file where that has to load it.
        options: How to answer.
    """
    from hippovault_gateway.cli import app as commands

    commands.import_all()
    if install:
        path = commands.app.install_completion(shell=shell)
        if options.json:
            show_json({"shell": shell, "file": str(path)})
        else:
            needs = ", where .zshrc runs compinit" if shell == "zsh" else ""
            show_line(f"installed: {path}; it takes effect in the next shell{needs}")
        return
    script = commands.app.generate_completion(shell=shell)
    if options.json:
        show_json({"shell": shell, "script": script})
    else:
        show_line(script)
