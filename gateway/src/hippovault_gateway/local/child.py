"""A child process: started, waited for until it serves, stopped."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hippovault_chassis.drain import STOP_SECONDS
from hippovault_gateway.local.log_files import open_log, tail
from hippovault_gateway.local.notifications import Notifications


class StartError(Exception):
    """A process does not serve; the message names it and its log."""


@dataclass(frozen=True)
class Inherited:
    """The file descriptors that a child inherits."""

    lifeline: int
    """Becomes its stdin, whose end tells it that the parent is gone."""
    lock: int
    """Held until the child has ended too."""


@dataclass(frozen=True)
class Child:
    """One of the services, running."""

    name: str
    process: asyncio.subprocess.Process
    log: Path
    log_start: int
    """Byte of the log at which this process's lines begin."""

    @classmethod
    async def start(cls, name: str, log: Path, inherited: Inherited, environment: Mapping[str, str]) -> Self:
        """Starts `python -m hippovault_<name>`.

        Args:
            name: The service.
            log: Where its output goes.
            inherited: What it holds open.
            environment: Its variables.
        """
        with open_log(log) as output:
            log_start = output.tell()
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # The directory that somebody happens to stand in is no place to import from.
                "-m",
                f"hippovault_{name}",
                stdin=inherited.lifeline,
                stdout=output,
                stderr=output,
                env=environment,
                pass_fds=(inherited.lock,),
                process_group=0,  # Ctrl-C goes to the parent alone, which stops them in order.
            )
        return cls(name, process, log, log_start)

    async def ready(self, notifications: Notifications, seconds: float) -> str:
        """Returns the status that it tells once it serves, such as its address.

        Raises:
            StartError: It ended, or took longer than the given seconds.
        """
        status = notifications.status(self.process.pid)
        ended = asyncio.ensure_future(self.process.wait())
        both: set[asyncio.Future[Any]] = {status, ended}
        try:
            done, _ = await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            notifications.forget(self.process.pid)
        if status in done:
            return status.result()
        problem = describe(ended.result()) if ended in done else f"did not serve within {seconds:g} s"
        raise StartError(
            f"the {self.name} service {problem}; its log {self.log} ends:\n{tail(self.log, self.log_start)}"
        )

    async def stop(self) -> None:
        """Asks it to stop; ends it when it does not."""
        if self.process.returncode is not None:
            return
        self.process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


def describe(return_code: int) -> str:
    """Says how a process ended."""
    return f"ended with exit code {return_code}" if return_code >= 0 else f"was ended by signal {-return_code}"
