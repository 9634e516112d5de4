"""The memory that is looked at."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import grpc

from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_chassis import channels
from hippovault_chassis.errors import ServiceError
from hippovault_chassis.home import Home
from hippovault_chassis.locks import holder
from hippovault_gateway.cli.client import Client, connect, gateway_settings, service_error
from hippovault_gateway.cli.options import ClientOptions
from hippovault_gateway.local.state import lock_path
from hippovault_gateway.settings import GatewaySettings

StubT = TypeVar("StubT")

MAX_SECONDS = 15.0
"""What one question gets: an answer that takes longer is none."""


class NotRunningError(Exception):
    """A check needs a memory that runs, and none does."""


@dataclass(frozen=True)
class Patient:
    """A memory, running or not."""

    options: ClientOptions

    @property
    def home(self) -> Home:
        """Its paths."""
        return self.options.layout

    @property
    def seconds(self) -> float:
        """What one question gets."""
        return min(self.options.timeout, MAX_SECONDS)

    @cached_property
    def supervisor(self) -> int | None:
        """The id of the process that runs it; None when there is none."""
        return holder(lock_path(self.home))

    @cached_property
    def answer(self) -> pb.PingResponse | ServiceError:
        """How it said that it is when it was asked first, or why it did not."""
        try:
            return self.ping()
        except ServiceError as error:
            return error

    def answered(self) -> pb.PingResponse:
        """Returns how it said that it is.

        Raises:
            NotRunningError: It did not say.
        """
        if isinstance(self.answer, ServiceError):
            raise NotRunningError
        return self.answer

    @cached_property
    def settings(self) -> GatewaySettings:
        """What its gateway is told.

        Raises:
            ServiceError: That makes no sense; the message has the parser's words.
        """
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                return gateway_settings(self.home)
        except ServiceError as error:
            words = " ".join(line.strip("│╭╮╰╯─ ") for line in said.getvalue().splitlines())
            raise ServiceError(error.code, error.reason, words.removeprefix("Error").strip()) from None

    def ping(self) -> pb.PingResponse:
        """Returns how it says that it is.

        Raises:
            ServiceError: Its gateway does not answer.
        """
        with self.gateway() as client:
            return client.call(client.stub.Ping, pb.PingRequest())

    @contextmanager
    def gateway(self) -> Iterator[Client]:
        """Yields a client of its gateway."""
        self.settings  # noqa: B018  # Wrong ones are told here, and not on stderr.
        options = ClientOptions(home=self.options.home, json=self.options.json, timeout=self.seconds)
        with connect(options, patient=False) as client:
            yield client

    @contextmanager
    def service(self, name: str, target: str, full_name: str, stub: Callable[[Any], StubT]) -> Iterator[StubT]:
        """Yields a stub of a service behind the gateway.

        Raises:
            ServiceError: What the service answered within the context.
        """
        with channels.sync(target, full_name, ()) as channel:
            try:
                yield stub(channel)
            except grpc.RpcError as error:
                raise service_error(error, name, self.home) from None
