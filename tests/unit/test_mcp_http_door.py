"""Where MCP over HTTP may be served, and how it tells its health."""

from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hippovault_chassis import serving
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.application import Application
from hippovault_gateway.clients import EMBEDDING_SERVICE, STORAGE_SERVICE, Services
from hippovault_gateway.mcp.http_door import http_door
from hippovault_gateway.settings import GatewaySettings


@pytest.fixture
async def application() -> AsyncIterator[Application]:
    """An application whose services nobody calls."""
    async with Services.connect("unix:/nowhere", "unix:/nowhere") as services:
        yield Application(services, GatewaySettings())


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "example.org:80", "unix:/tmp/x", "7465", "127.0.0.1:x"])
async def test_only_loopback_is_served(application: Application, address: str) -> None:
    with pytest.raises(ServiceError, match=r"^http: ") as caught:
        await http_door(application, [address], "all").__aenter__()

    assert caught.value.field == "http"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
async def test_the_url_tells_the_port_that_was_found(application: Application, host: str) -> None:
    async with http_door(application, [f"{host}:0"], "all") as url:
        authority, _, path = url.removeprefix("http://").partition("/")
        found, _, port = authority.rpartition(":")
        socket.create_connection((found, int(port))).close()

    assert path == "mcp"


async def test_a_port_in_use_is_an_error(application: Application) -> None:
    async with http_door(application, ["127.0.0.1:0"], "all") as url:
        address = url.removeprefix("http://").removesuffix("/mcp")
        with pytest.raises(ServiceError, match=f"{address} is in use"):
            await http_door(application, [address], "all").__aenter__()


def health(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"{url.removesuffix('/mcp')}/health", timeout=60) as response:  # noqa: S310
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def health_alone(service: str) -> serving.Service:
    """A service that implements nothing: a server of it answers health checks, and whatever else fails."""
    return serving.Service(service, None, lambda _servicer, _server: None)


async def test_health_costs_the_services_behind_the_gateway_no_work(home: Path) -> None:
    embedding, storage = (f"unix:{home.parent}/{name}.sock" for name in ("embedding", "storage"))
    async with (
        serving.aio_server(embedding, [health_alone(EMBEDDING_SERVICE)]),
        Services.connect(embedding, storage) as services,
        http_door(Application(services, GatewaySettings()), ["127.0.0.1:0"], "all") as url,
    ):
        async with serving.aio_server(storage, [health_alone(STORAGE_SERVICE)]):
            assert await asyncio.to_thread(health, url) == (200, b"serving")
        assert await asyncio.to_thread(health, url) == (503, b"not serving")
