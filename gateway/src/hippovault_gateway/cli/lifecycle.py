"""Commands over the whole memory: up, down, status, and the stdio door."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hippovault_chassis.default_home import HOME_VARIABLE, default_home
from hippovault_chassis.locks import LockHeldError, holder
from hippovault_chassis.settings import HomePath
from hippovault_gateway.cli import failures, output
from hippovault_gateway.cli.options import CLIENT_DEFAULTS, DEFAULTS, ClientOptions, Options, Seconds
from hippovault_gateway.local import launcher, mcp_configuration
from hippovault_gateway.local.state import BEHIND_GATEWAY, GATEWAY, lock_path, read_serving
from hippovault_gateway.settings import ToolSet

if TYPE_CHECKING:
    from hippovault_chassis.home import Home
    from hippovault_gateway.cli.models import ModelView
    from hippovault_gateway.views import PingView

LOOK_SECONDS = 1.0
"""Between two looks whether a memory that does not answer yet still runs."""


def up(
    *,
    detach: bool = False,
    http: str = "",
    start_timeout: Seconds = 60.0,
    options: Options = DEFAULTS,
) -> None:
    """Starts the memory and prints what to paste into an MCP host.

    Runs until SIGTERM or Ctrl-C; with --detach in the background. Starting a detached one twice is no error.

    Args:
        detach: Return once the memory serves, and leave it running.
        http: Where to serve MCP over HTTP, a loopback host:port, or off (default: 127.0.0.1:7465 for the default home,
            for others, or where it is taken, a free port that stays theirs). A memory that runs keeps
            what it was started with.
        start_timeout: Seconds that each process gets until it serves (default: 60).
        options: Which memory, and how to answer.
    """
    home = options.layout
    home.create()
    home.socket("embedding")  # The longest name; a home that is too deep is told before anything starts.
    environment = {**os.environ, HOME_VARIABLE: str(home.root)}
    if http:
        environment["HIPPOVAULT_GATEWAY_HTTP"] = http
    if detach:
        started = _started(options, start_timeout, environment)
        if http and started.already_running:
            place = started.http_url or "no address"
            output.warn(f"the memory runs already, and serves MCP over HTTP at {place}; --http is not used")
        _show_up(options, started)
        return
    pid = holder(lock_path(home))
    if pid is not None:
        raise LockHeldError(f"the memory {home.root} is running already, pid {pid}")
    launcher.become_supervisor(home, start_timeout, environment, as_json=options.json)


def down(*, options: Options = DEFAULTS) -> None:
    """Stops the memory and waits until it is down. When none runs, that is no error.

    Args:
        options: Which memory, and how to answer.
    """
    pid = launcher.stop(options.layout)
    if options.json:
        output.show_json({"stopped": pid is not None, "pid": pid})
    elif pid is None:
        output.show_line(f"the memory {options.layout.root} is not running")
    else:
        output.show_line(f"stopped the memory {options.layout.root}, pid {pid}")


def status(*, options: ClientOptions = CLIENT_DEFAULTS) -> int:
    """Tells how the memory is.

    Args:
        options: Which memory, and how to answer.

    Returns:
        0 when every process serves, else 1.
    """
    from hippovault_chassis.errors import ServiceError

    home = options.layout
    pid = holder(lock_path(home))
    ping, error = None, None
    try:
        ping = _ping(options)
    except ServiceError as caught:
        error = failures.document(caught)
    processes = {} if pid is None else _processes(home)
    models = _models(options) if ping else []
    if options.json:
        document = {"home": str(home.root), "pid": pid, "processes": processes}
        shown = [model.model_dump() for model in models]
        output.show_json({**document, "ping": ping.model_dump() if ping else None, "models": shown, "error": error})
    else:
        output.show_line(f"memory {home.root}: {f'running, pid {pid}' if pid else 'not running'}")
        if processes:
            columns = ["process", "state", "pid", "since (UTC)", "address"]
            rows = [
                (name, one["state"], one["pid"], one["since"][:19], one["address"]) for name, one in processes.items()
            ]
            output.show_table(columns, rows)
        _show_ping(ping, error, models)
    return 0 if ping and all(service.serving for service in ping.services) else 1


def mcp(*, tools: ToolSet = "all", home: HomePath = Path(default_home())) -> None:  # noqa: B008  # Read once.
    """Serves MCP on stdin and stdout, for the host that starts it; starts the memory when none runs.

    Args:
        tools: hippo's, those by SHODH names, or all: hippo's are listed, both are answered (default).
        home: Directory of the memory (default: the XDG data directory's hippovault).
    """
    launcher.become_door(Options(home=home).layout, tools)


def _processes(home: Home) -> dict[str, dict[str, Any]]:
    """Returns how each process is, by name; one that is down its supervisor starts again."""
    serving, down = read_serving(home), {"state": "down", "pid": None, "since": "", "address": ""}
    return {
        name: {"state": "serving", **serving[name]} if name in serving else down for name in (*BEHIND_GATEWAY, GATEWAY)
    }


def _started(options: Options, seconds: float, environment: Mapping[str, str]) -> launcher.Started:
    """Starts the memory, or waits for the one that runs; when that one is being stopped, starts it again after that."""
    while True:
        started = launcher.start_detached(options.layout, seconds, environment)
        if not started.already_running:
            return started
        url = _http_url(options, started.pid, seconds)
        if url is not None:
            return replace(started, http_url=url)


def _http_url(options: Options, pid: int, seconds: float) -> str | None:
    """Returns where MCP over HTTP is served, waiting for a memory that is just starting; None when that one ends."""
    from hippovault_chassis.errors import ServiceError

    ends = time.monotonic() + seconds
    while True:
        try:
            return _ping(ClientOptions(home=options.home, timeout=LOOK_SECONDS), wait=True).mcp_http_url
        except ServiceError:
            if holder(lock_path(options.layout)) != pid:
                return None
            if time.monotonic() > ends:
                raise


def _ping(options: ClientOptions, *, wait: bool = False) -> PingView:
    from hippovault.memory.v1 import memory_service_pb2 as pb
    from hippovault_gateway.cli.client import connect
    from hippovault_gateway.views import PingView

    with connect(options, patient=False) as client:
        return PingView.of(client.call(client.stub.Ping, pb.PingRequest(), wait=wait))


def _models(options: ClientOptions) -> list[ModelView]:
    from hippovault_gateway.cli import models

    return models.served(options)


def _show_up(options: Options, started: launcher.Started) -> None:
    home = options.layout.root
    if options.json:
        document = {"home": str(home), "pid": started.pid, "already_running": started.already_running}
        output.show_json({**document, **mcp_configuration.document(home), "mcp_http_url": started.http_url})
        return
    running = "is running already" if started.already_running else "is running"
    output.show_line(f"the memory {home} {running}, pid {started.pid}")
    output.show_line(mcp_configuration.text(home, started.http_url, as_json=False))


def _show_ping(ping: PingView | None, error: dict[str, str] | None, models: list[ModelView]) -> None:
    if ping is None:
        output.show_line(error["message"] if error else "")
        return
    rows = [(one.name, "serving" if one.serving else "down", one.detail or one.reason) for one in ping.services]
    output.show_table(["service", "state", "detail"], rows)
    if models:
        about = [(one.name, one.state, one.dimensions, one.load_error or one.server) for one in models]
        output.show_table(["model", "state", "dimensions", "detail"], about)
    if ping.live_memories is not None:
        live = output.counted(ping.live_memories, "memory", "memories")
        pending = f", {ping.pending_memories} still to be embedded" if ping.pending_memories else ""
        output.show_line(f"{live}, {ping.deleted_memories} forgotten{pending}")
    output.show_line(f"version {ping.version}")
    if ping.mcp_http_url:
        output.show_line(f"MCP over HTTP: {ping.mcp_http_url}")
