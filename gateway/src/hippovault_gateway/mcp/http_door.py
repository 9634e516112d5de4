"""MCP over Streamable HTTP, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Iterator

import grpc
import mcp_types
import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import RequestBodyLimitMiddleware, TransportSecuritySettings
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hippovault_chassis import addresses
from hippovault_chassis.drain import GRACE_SECONDS
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.application import Application
from hippovault_gateway.mcp import messages, server
from hippovault_gateway.mcp.calls import LAST_ANSWER_SECONDS, Calls
from hippovault_gateway.settings import ToolSet

PATH = "/mcp"
HEALTH_PATH = "/health"
HEALTH_SECONDS = 1.0
BACKLOG = 100
MAX_CONNECTIONS = 512
"""At a time; requests of further ones are answered by 503."""


@contextlib.asynccontextmanager
async def http_door(application: Application, candidates: list[str], tool_set: ToolSet) -> AsyncIterator[str]:
    """Serves MCP at /mcp while the context lasts; leaving it answers what was asked.

    Stateless in both eras of the protocol: no session expires, and clients outlive a restart of the gateway.

    Args:
        application: What the memory can do.
        candidates: Loopback `host:port`s, port 0 for any; the first that is not in use is served.
        tool_set: The tools that are listed.

    Yields:
        The URL of /mcp.

    Raises:
        ServiceError: A bind is refused, or every address is in use.
    """
    with _listener(candidates) as listener:
        host, port = listener.getsockname()[:2]
        authority = f"[{host}]" if listener.family == socket.AF_INET6 else host
        calls = Calls()
        served = server.build(application, calls, tool_set)

        def manager(*, json_response: bool) -> StreamableHTTPSessionManager:
            return StreamableHTTPSessionManager(
                served,
                json_response=json_response,
                stateless=True,
                security_settings=_security(authority),
                max_request_body_size=messages.MAX_BYTES,
            )

        plain, streamed = manager(json_response=True), manager(json_response=False)
        async with plain.run(), streamed.run(), _serving(_application(application, plain, streamed), listener):
            try:
                yield f"http://{authority}:{port}{PATH}"
            finally:
                calls.end_within(GRACE_SECONDS)


def _listener(candidates: list[str]) -> socket.socket:
    *others, last = candidates
    for address in others:
        with contextlib.suppress(ServiceError):
            return _bound(address)
    return _bound(last)


def _bound(address: str) -> socket.socket:
    host, port = addresses.split_host_port("http", address)
    addresses.check_bind("http", address)
    # By the protocol's number asyncio knows that TCP_NODELAY is to be set; without it each answer waits 40 ms.
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION, "ADDRESS_IN_USE", f"http: {address} is in use", field="http"
        ) from None
    return listener


def _security(authority: str) -> TransportSecuritySettings:
    """Returns whom a browser may be: a page of this machine. Others could reach loopback by rebinding a DNS name."""
    hosts = [authority, "127.0.0.1", "localhost", "[::1]"]
    return TransportSecuritySettings(
        allowed_hosts=[f"{host}:*" for host in hosts], allowed_origins=[f"http://{host}:*" for host in hosts]
    )


def _application(
    application: Application, plain: StreamableHTTPSessionManager, streamed: StreamableHTTPSessionManager
) -> Starlette:
    async def health(_request: Request) -> Response:
        if await application.serving(HEALTH_SECONDS):
            return PlainTextResponse("serving")
        return PlainTextResponse("not serving", status_code=503)

    guard = _Guard(StreamableHTTPASGIApp(plain), StreamableHTTPASGIApp(streamed))
    guarded = RequestBodyLimitMiddleware(guard, messages.MAX_BYTES)
    # Without a session there is no stream to GET and nothing to DELETE; the router answers 405.
    return Starlette(routes=[Route(PATH, guarded, methods=["POST"]), Route(HEALTH_PATH, health)])


class _Guard:
    """Answers a body that is no message by the rule that holds at the socket too.

    Args:
        plain: What other bodies go to; it answers with one message.
        streamed: What answers with a stream, on which progress can be reported, where the client asks for that.
    """

    def __init__(self, plain: ASGIApp, streamed: ASGIApp) -> None:
        self._plain = plain
        self._streamed = streamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, its body read and put back."""
        # RequestBodyLimitMiddleware gives the whole body in one piece.
        first = await receive()
        try:
            message = messages.read(first.get("body", b""))
        except messages.Refused as refused:
            answer = refused.answer.model_dump_json(by_alias=True, exclude_unset=True)
            await Response(answer, status_code=400, media_type="application/json")(scope, receive, send)
            return
        replayed = iter([first])

        async def again() -> Message:
            return next(replayed, None) or await receive()

        await (self._streamed if _wants_progress(message, scope) else self._plain)(scope, again, send)


def _wants_progress(message: mcp_types.JSONRPCMessage, scope: Scope) -> bool:
    if not isinstance(message, mcp_types.JSONRPCRequest) or progress_token_from_params(message.params) is None:
        return False
    return "text/event-stream" in Headers(scope=scope).get("accept", "")


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals to the process, which has more to stop than this server."""
        yield


@contextlib.asynccontextmanager
async def _serving(application: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    config = uvicorn.Config(
        application,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=int(GRACE_SECONDS + LAST_ANSWER_SECONDS),
    )
    serving = _Uvicorn(config)
    task = asyncio.create_task(serving.serve([listener]))
    try:
        yield
    finally:
        serving.should_exit = True
        await task
