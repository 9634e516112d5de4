"""The storage process: `python -m hippovault_storage`."""

from __future__ import annotations

from hippovault.storage.v1.storage_pb2_grpc import add_StorageServiceServicer_to_server
from hippovault_chassis import process, serving
from hippovault_storage import capacity
from hippovault_storage.servicer import NAME, StorageServicer
from hippovault_storage.settings import StorageSettings
from hippovault_storage.sqlite.engine import SqliteEngine

DATABASE = "memories.db"


def main() -> None:
    """Serves until the process is asked to stop."""
    process.run("storage", StorageSettings, serve)


def serve(settings: StorageSettings) -> None:
    """Serves with these settings until the process is asked to stop."""
    path = settings.layout.data / DATABASE
    with SqliteEngine.open(path, settings.dimensions, settings.read_connections) as engine:
        service = serving.Service(NAME, StorageServicer(engine), add_StorageServiceServicer_to_server)
        with serving.sync_server(settings.address("storage"), [service], capacity.THREADS) as bound:
            serving.wait_until_stopped(bound)


if __name__ == "__main__":
    main()
