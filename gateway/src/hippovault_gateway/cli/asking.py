"""How most commands go: their options become a request, which the running memory answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.protobuf.message import Message

from hippovault_gateway.arguments import Arguments
from hippovault_gateway.cli import inputs
from hippovault_gateway.cli.client import connect
from hippovault_gateway.cli.options import ClientOptions, WriteOptions
from hippovault_gateway.documents import parse

if TYPE_CHECKING:
    from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceStub

ResponseT = TypeVar("ResponseT", bound=Message)


def ask(
    method: Callable[[MemoryServiceStub], grpc.UnaryUnaryMultiCallable[Any, ResponseT]],
    arguments: type[Arguments],
    values: Mapping[str, Any],
    options: ClientOptions,
) -> ResponseT:
    """Returns the memory's answer.

    Args:
        method: Picks it from the stub.
        arguments: What its request is made by.
        values: What the options say; None is what was not given.
        options: Which memory; of a write, also the name that it goes by.

    Raises:
        ServiceError: INVALID_ARGUMENT, what the memory answered, or that it does not run.
    """
    inputs.check_unicode(values)
    request: Any = parse(arguments, values).request()
    if isinstance(options, WriteOptions):
        inputs.check_unicode({"request_id": options.request_id})
        request.request_id = options.request_id
    with connect(options) as client:
        return client.call(method(client.stub), request)
