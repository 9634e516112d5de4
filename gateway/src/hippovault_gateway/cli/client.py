"""The running memory, as the commands ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar, cast

import grpc
from google.protobuf.message import Message

from hippovault.memory.v1 import memory_service_pb2, memory_service_pb2_grpc
from hippovault_chassis import channels, settings
from hippovault_chassis.errors import STATUS_KEY, ServiceError
from hippovault_chassis.home import Home
from hippovault_chassis.locks import holder
from hippovault_gateway.arguments import named_as_given
from hippovault_gateway.cli.options import ClientOptions
from hippovault_gateway.local.state import GATEWAY, lock_path, read_serving
from hippovault_gateway.settings import GatewaySettings

if TYPE_CHECKING:
    RequestT = TypeVar("RequestT", bound=Message)
    ResponseT = TypeVar("ResponseT", bound=Message)

RESTART_SECONDS = 5.0
SERVICE: str = memory_service_pb2.DESCRIPTOR.services_by_name["MemoryService"].full_name
# Those that change nothing: a repeated write would report what the first one did as done already.
RETRIED = ("Recall", "GetMemory", "ListMemories", "ListMemoryVersions", "SummarizeSession", "Ping")


class Client:
    """Calls MemoryService, each call within the time that the options give.

    Args:
        channel: To the gateway.
        options: Home and timeout.
    """

    def __init__(self, channel: grpc.Channel, options: ClientOptions) -> None:
        self.stub = memory_service_pb2_grpc.MemoryServiceStub(channel)
        self._options = options

    def call(
        self,
        method: grpc.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        *,
        wait: bool = False,
    ) -> ResponseT:
        """Returns the answer.

        Args:
            method: Of `stub`.
            request: Its request.
            wait: Whether to wait for a gateway that does not serve yet.

        Raises:
            ServiceError: What the memory answered, or that it does not run.
        """
        try:
            return method(request, timeout=self._options.timeout, wait_for_ready=wait)
        except grpc.RpcError as error:
            raise service_error(error, GATEWAY, self._options.layout) from None

    def stream(
        self, method: grpc.StreamStreamMultiCallable[RequestT, ResponseT], requests: Iterator[RequestT]
    ) -> Iterator[ResponseT]:
        """Yields the answers to a stream, which takes the time that it takes.

        Raises:
            ServiceError: What the memory answered, or that it does not run.
        """
        try:
            yield from method(requests)
        except grpc.RpcError as error:
            raise service_error(error, GATEWAY, self._options.layout) from None


@contextmanager
def connect(options: ClientOptions, *, patient: bool = True) -> Iterator[Client]:
    """Yields a client of the memory; connecting waits for the first call.

    Args:
        options: Home and timeout.
        patient: Whether to wait a moment for a gateway that is about to be started again.
    """
    # Where no supervisor runs, nothing comes back by itself.
    retried = () if holder(lock_path(options.layout)) is None else RETRIED
    with channels.sync(gateway_settings(options.layout).address(GATEWAY), SERVICE, retried) as channel:
        if patient:
            await_restart(channel, options.layout, GATEWAY, options.timeout)
        yield Client(channel, options)


def await_restart(channel: grpc.Channel, home: Home, name: str, seconds: float) -> None:
    """Waits a moment for a process that its supervisor is about to start again; calls tell when it does not come."""
    if holder(lock_path(home)) is None or name in read_serving(home):
        return
    with suppress(grpc.FutureTimeoutError):
        grpc.channel_ready_future(channel).result(timeout=min(seconds, RESTART_SECONDS))


def gateway_settings(home: Home) -> GatewaySettings:
    """Returns what the gateway is told, so that the services are found where it serves and where it finds them.

    Raises:
        ServiceError: The settings are wrong.
    """
    try:
        return settings.load(GatewaySettings, GATEWAY, ["--home", str(home.root)])
    except SystemExit:  # What is wrong is on stderr by now.
        problem = f"the gateway's settings, in {home.root} or the environment, are wrong"
        raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, "INVALID_SETTING", problem) from None


def service_error(rpc_error: grpc.RpcError, service: str, home: Home) -> ServiceError:
    """Returns what a service of the memory answered, or that the memory does not run."""
    error = ServiceError.from_rpc(rpc_error, service)
    unreachable = error.code is grpc.StatusCode.UNAVAILABLE and not _was_answered(rpc_error)
    if unreachable and holder(lock_path(home)) is None:
        message = f"the memory {home.root} is not running; start it with: {home.command('up --detach')}"
        return ServiceError(error.code, "NOT_RUNNING", message)
    return named_as_given(error)


def _was_answered(error: grpc.RpcError) -> bool:
    """Tells an error that the service answered, such as about a service behind it, from one of the connection."""
    metadata = cast("grpc.Call", error).trailing_metadata() or ()
    return any(key == STATUS_KEY for key, _ in metadata)
