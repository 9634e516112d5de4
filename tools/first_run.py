"""Starts a memory, shows it at work, and says how to go on: what `make run` does. May be run again at any time."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

HIPPOVAULT = str(Path(sys.executable).with_name("hippovault"))
NAMESPACE = ("--namespace", "demo")
FACT = "Mia moved the team's deployments from Jenkins to GitHub Actions, because builds had queued for an hour."
QUESTION = "Why was the continuous integration system replaced?"


def started() -> dict[str, object]:
    """Starts the memory, unless it runs, and returns what `hippovault up` tells."""
    command = [HIPPOVAULT, "up", "--detach", "--json"]
    print(f"$ {shlex.join(['hippovault', *command[1:]])}", flush=True)
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    told: dict[str, object] = json.loads(answer.stdout or "{}")
    if answer.returncode:
        error = told.get("error")
        sys.exit(str(error["message"]) if isinstance(error, dict) else "hippovault up failed")
    print(f"the memory {told['home']} {'runs already' if told['already_running'] else 'is running'}\n")
    return told


def show(*arguments: str) -> None:
    """Runs a command of hippovault before the reader's eyes."""
    print(f"$ {shlex.join(['hippovault', *arguments])}", flush=True)
    if subprocess.run([HIPPOVAULT, *arguments], check=False).returncode:
        sys.exit(1)
    print()


def main() -> None:
    """Starts, remembers, recalls, and prints the configuration."""
    told = started()
    show("remember", FACT, *NAMESPACE, "--tag", "decision")
    show("recall", QUESTION, *NAMESPACE, "--limit", "1")
    print("Paste this into the configuration of your MCP host:")
    print(json.dumps({"mcpServers": told["mcpServers"]}, indent=2))
    if told["mcp_http_url"]:
        print(f"or let it connect to {told['mcp_http_url']}")
    print("\nThe memory keeps running. To see how it is: hippovault status; to stop it: make stop (or hippovault down)")
    print(f"hippovault stands for {HIPPOVAULT}")


if __name__ == "__main__":
    main()
