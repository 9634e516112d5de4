"""A memory of the benchmark's own: the real three processes in a temporary home."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

HIPPOVAULT = Path(sys.executable).parent / "hippovault"


@contextmanager
def memory(variables: Mapping[str, str]) -> Iterator[str]:
    """Runs `hippovault up` while the context lasts.

    Args:
        variables: Environment of the processes, beside this one's.

    Yields:
        The gRPC target of MemoryService.
    """
    with tempfile.TemporaryDirectory(prefix="hv-") as directory:
        home = Path(directory) / "home"
        environment = {**os.environ, **variables, "HIPPOVAULT_HOME": str(home), "HIPPOVAULT_GATEWAY_HTTP": "off"}
        subprocess.run([HIPPOVAULT, "up", "--detach"], env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            yield f"unix:{home / 'run' / 'gateway.sock'}"
        finally:
            subprocess.run([HIPPOVAULT, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)
