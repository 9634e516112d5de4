"""Runs the three processes of a memory: starts them in order, restarts what dies, stops them in order.

A program of its own (`python -m hippovault_gateway.local.supervisor HOME SECONDS FORMAT`): it lives as long as the
memory does, and needs neither gRPC nor a parser of command lines, which would triple its size.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from hippovault_chassis import notify
from hippovault_chassis.default_home import HOME_VARIABLE
from hippovault_chassis.drain import STOP_SECONDS
from hippovault_chassis.home import Home
from hippovault_chassis.locks import LockHeldError, lock_file
from hippovault_gateway.local import mcp_configuration
from hippovault_gateway.local.child import Child, Inherited, StartError, describe
from hippovault_gateway.local.notifications import Notifications
from hippovault_gateway.local.state import BEHIND_GATEWAY, GATEWAY, Serving, lock_path, write_serving

STORE_KEY = "HIPPOVAULT_STORAGE_KEY"
FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 5.0
STABLE_SECONDS = 30.0
"""A process that served this long is restarted as if it had never failed."""
ORPHAN_SECONDS = STOP_SECONDS + 5.0
"""What the children of a supervisor that was killed get; nobody ends them."""


class Supervisor:
    """Keeps the processes of one memory running. Needs a running event loop.

    Args:
        home: The memory.
        start_seconds: What each process gets until it serves.
        lock: Held while any child lives, whatever becomes of this process.
        as_json: Whether the MCP configuration is printed as JSON alone.
    """

    def __init__(self, home: Home, start_seconds: float, lock: int, *, as_json: bool) -> None:
        self._home = home
        self._start_seconds = start_seconds
        self._as_json = as_json
        self._children: dict[str, Child] = {}
        self._serving: dict[str, Serving] = {}
        self._notifications = Notifications(home.socket("notify"))
        # Nothing is ever written: the children's reads end when this process does, however it ends.
        lifeline, self._kept_open = os.pipe()
        self._inherited = Inherited(lifeline, lock)

    async def run(self) -> None:
        """Returns when the process was asked to stop and all children have ended.

        Raises:
            StartError: A process could not be started at first; those that were have been stopped.
        """
        asked_to_stop = asyncio.ensure_future(_stop_signal().wait())
        work = asyncio.ensure_future(self._start_and_keep())
        try:
            await asyncio.wait({work, asked_to_stop}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            work.cancel()
            await asyncio.wait({work})
            await self._stop()

    async def _start_and_keep(self) -> None:
        await asyncio.gather(*(self._start(name) for name in BEHIND_GATEWAY))
        http_url = await self._start(GATEWAY)
        with contextlib.suppress(OSError):  # Nobody may read it; the memory runs all the same.
            sys.stdout.write(mcp_configuration.text(self._home.root, http_url, as_json=self._as_json))
            sys.stdout.flush()
        notify.ready(http_url)
        await asyncio.gather(*(self._keep(name) for name in self._children))

    async def _start(self, name: str) -> str:
        """Returns the status of the process once it serves."""
        environment = {
            **_variables(name),
            HOME_VARIABLE: str(self._home.root),
            notify.SUPERVISED: "1",
            notify.VARIABLE: str(self._home.socket("notify")),
        }
        child = await Child.start(name, self._home.logs / f"{name}.log", self._inherited, environment)
        self._children[name] = child
        try:
            status = await child.ready(self._notifications, self._start_seconds)
        except StartError:
            await child.stop()
            raise
        since = datetime.now(UTC).isoformat(timespec="milliseconds")
        address = status or f"unix:{self._home.socket(name)}"
        self._note(name, Serving(pid=child.process.pid, address=address, since=since))
        return status

    async def _keep(self, name: str) -> None:
        """Restarts the process whenever it ends, ever more slowly while it does not last."""
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE_SECONDS
        while True:
            began = loop.time()
            code = await self._children[name].process.wait()
            self._note(name, None)
            if loop.time() - began > STABLE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            _log(f"the {name} service {describe(code)}", restart_in_seconds=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)
            try:
                await self._start(name)
            except (StartError, OSError) as error:
                _log(str(error))

    async def _stop(self) -> None:
        """Stops the gateway first, so that no request loses the services behind it."""
        for names in ((GATEWAY,), BEHIND_GATEWAY):
            await asyncio.gather(*(self._children[name].stop() for name in names if name in self._children))
        with contextlib.suppress(OSError):
            write_serving(self._home, {})

    def _note(self, name: str, serving: Serving | None) -> None:
        if serving is None:
            self._serving.pop(name, None)
        else:
            self._serving[name] = serving
        try:
            write_serving(self._home, self._serving)
        except OSError as error:  # A full disk is no reason to stop what runs.
            _log(str(error))


def _variables(name: str) -> dict[str, str]:
    """Returns this process's variables without the store's key, which is the storage service's alone."""
    return {key: value for key, value in os.environ.items() if key != STORE_KEY or name == "storage"}


def _stop_signal() -> asyncio.Event:
    asked, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, asked.set)
    return asked


def _log(event: str, **members: object) -> None:
    line = {"service": "up", **members, "event": event, "timestamp": datetime.now(UTC).isoformat()}
    with contextlib.suppress(OSError):  # The terminal may be gone, or the disk full.
        sys.stderr.write(json.dumps(line) + "\n")


@contextlib.contextmanager
def _locks(home: Home) -> Iterator[int]:
    """Makes this process the only supervisor, and one without an earlier one's children.

    Yields:
        The lock that its own children shall hold.
    """
    with lock_file(lock_path(home), f"the memory {home.root} is run"):
        try:
            children = lock_file(home.run / "children.lock", "", ORPHAN_SECONDS)
        except LockHeldError:
            problem = f"did not end within {ORPHAN_SECONDS:g} s"
            raise StartError(f"processes of an earlier run of the memory {home.root} {problem}") from None
        with children:
            yield children.fileno()


async def _run(home: Home, start_seconds: float, lock: int, *, as_json: bool) -> None:
    await Supervisor(home, start_seconds, lock, as_json=as_json).run()


def main() -> None:
    """Runs the memory of the home that the first argument names.

    Raises:
        SystemExit: It could not be started; what and why is on stderr.
    """
    root, start_seconds, output = sys.argv[1:]
    home = Home(Path(root))
    home.create()
    try:
        with _locks(home) as lock:
            asyncio.run(_run(home, float(start_seconds), lock, as_json=output == "json"))
    except (StartError, OSError) as error:
        sys.exit(f"hippovault up: {error}")


if __name__ == "__main__":
    main()
