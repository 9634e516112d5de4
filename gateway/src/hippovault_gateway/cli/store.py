"""The store of a running memory, as the commands over the whole of it ask its storage service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc

from hippovault.storage.v1 import maintenance_pb2, maintenance_pb2_grpc
from hippovault_chassis import channels
from hippovault_gateway.cli.client import RESTART_SECONDS, await_restart, gateway_settings, service_error
from hippovault_gateway.cli.options import StoreOptions

if TYPE_CHECKING:
    from hippovault.storage.v1.maintenance_pb2_grpc import MaintenanceServiceStub

STORAGE = "storage"
SERVICE: str = maintenance_pb2.DESCRIPTOR.services_by_name["MaintenanceService"].full_name


@contextmanager
def connect(options: StoreOptions) -> Iterator[MaintenanceServiceStub]:
    """Yields a stub of what is asked of a store as a whole, see `channel`."""
    with channel(options) as connected:
        yield maintenance_pb2_grpc.MaintenanceServiceStub(connected)


@contextmanager
def channel(options: StoreOptions) -> Iterator[grpc.Channel]:
    """Yields a channel to the storage service; connecting waits for the first call.

    Raises:
        ServiceError: What the storage service answered to a call within the context, or that it does not run.
    """
    target = options.storage or gateway_settings(options.layout).storage_target()
    with channels.sync(target, SERVICE, ()) as opened:
        await_restart(opened, options.layout, STORAGE, RESTART_SECONDS)
        try:
            yield opened
        except grpc.RpcError as error:
            raise service_error(error, STORAGE, options.layout) from None
