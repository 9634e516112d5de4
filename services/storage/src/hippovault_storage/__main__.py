"""The storage process: `python -m hippovault_storage`."""

from __future__ import annotations

from threadpoolctl import threadpool_limits

from hippovault.storage.v1.maintenance_pb2_grpc import add_MaintenanceServiceServicer_to_server
from hippovault.storage.v1.storage_pb2_grpc import add_StorageServiceServicer_to_server
from hippovault_chassis import process, serving
from hippovault_storage import capacity, maintenance, servicer
from hippovault_storage.settings import StorageSettings
from hippovault_storage.sqlite.engine import SqliteEngine


def main() -> None:
    """Serves until the process is asked to stop."""
    process.run("storage", StorageSettings, serve)


def serve(settings: StorageSettings) -> None:
    """Serves with these settings until the process is asked to stop."""
    # Each request has a thread: those of BLAS would wait for each other, on a busy machine for 100 ms a product.
    threadpool_limits(1, user_api="blas")
    with SqliteEngine.open(
        settings.database,
        settings.dimensions,
        settings.read_connections,
        settings.wanted_encryption,
        settings.index_min_vectors,
    ) as engine:
        services = [
            serving.Service(servicer.NAME, servicer.StorageServicer(engine), add_StorageServiceServicer_to_server),
            serving.Service(
                maintenance.NAME, maintenance.MaintenanceServicer(engine), add_MaintenanceServiceServicer_to_server
            ),
        ]
        with serving.sync_server(settings.address("storage"), services, capacity.THREADS) as bound:
            serving.wait_until_stopped(bound)


if __name__ == "__main__":
    main()
