"""Starts a memory, shows it at work, and says how to go on: what `make run` does. May be run again at any time."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

HIPPOVAULT = str(Path(sys.executable).with_name("hippovault"))
NAMESPACE = ("--namespace", "demo")
FACTS = (
    "Mia moved the deployments from Jenkins to GitHub Actions, because builds had queued for an hour.",
    "The staging database is called heron and is wiped every Sunday night.",
    "We chose PostgreSQL for billing: it must never lose a payment.",
)
QUESTION = "Which data store keeps our customers' money safe?"
"""Shares no word with the fact that answers it."""


def started() -> dict[str, object]:
    """Starts the memory, unless it runs, and returns what `hippovault up` tells."""
    print("$ hippovault up --detach", flush=True)
    command = [HIPPOVAULT, "up", "--detach", "--json"]
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
    for fact in FACTS:
        show("remember", fact, *NAMESPACE)
    show("recall", QUESTION, *NAMESPACE, "--limit", "1")
    print("Paste this into the configuration of your MCP host:")
    print(json.dumps({"mcpServers": told["mcpServers"]}, indent=2))
    if told["mcp_http_url"]:
        print(f"or let it connect to {told['mcp_http_url']}")
    print("\nThe memory keeps running. To see how it is: hippovault status; to stop it: make stop (or hippovault down)")
    print(f"hippovault stands for {HIPPOVAULT}")


if __name__ == "__main__":
    main()
