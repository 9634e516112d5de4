"""The gateway process: one application behind gRPC, MCP over a Unix socket and MCP over HTTP."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from hippovault_chassis import process, serving
from hippovault_gateway import http_address, servicer
from hippovault_gateway.accepting import AcceptErrors
from hippovault_gateway.application import Application
from hippovault_gateway.clients import Services
from hippovault_gateway.doors import Doors
from hippovault_gateway.settings import GatewaySettings

OFF = "off"


def main() -> None:
    """Serves until the process is asked to stop."""
    process.run("gateway", GatewaySettings, lambda settings: asyncio.run(_serve(settings)))


async def _serve(settings: GatewaySettings) -> None:
    # The SDK is the slowest import of the process; errors in settings are told before it.
    settings.surprise_weights()
    asyncio.get_running_loop().set_exception_handler(AcceptErrors())
    from hippovault_gateway.mcp.http_door import http_door
    from hippovault_gateway.mcp.socket_door import socket_door

    connected = Services.connect(settings.embedding_target(), settings.storage_target())
    async with connected as services, Doors() as doors:
        application = Application(services, settings)
        if settings.http != OFF:
            addresses = http_address.candidates(settings.layout, settings.http)
            url = await doors.open(http_door(application, addresses, settings.mcp_tools))
            http_address.keep(settings.layout, settings.http, urlsplit(url).netloc)
            application.mcp_http_url = url
        await doors.open(socket_door(application, settings.layout.socket("mcp")))
        await doors.open(serving.aio_server(settings.address("gateway"), [servicer.service(application)]))
        await doors.open(application.backfill.running())
        await serving.stopped(application.mcp_http_url)


if __name__ == "__main__":
    main()
