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
    """Yields a stub; connecting waits for the first call.

    Raises:
        ServiceError: What the storage service answered to a call within the context, or that it does not run.
    """
    target = options.storage or gateway_settings(options.layout).storage_target()
    with channels.sync(target, SERVICE, ()) as channel:
        await_restart(channel, options.layout, STORAGE, RESTART_SECONDS)
        try:
            yield maintenance_pb2_grpc.MaintenanceServiceStub(channel)
        except grpc.RpcError as error:
            raise service_error(error, STORAGE, options.layout) from None
