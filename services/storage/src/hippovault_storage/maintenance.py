"""MaintenanceService: hands what the keeper of a store asks for to the engine."""

from __future__ import annotations

from collections.abc import Iterator

from hippovault.storage.v1 import maintenance_pb2 as pb
from hippovault.storage.v1.maintenance_pb2_grpc import MaintenanceServiceServicer
from hippovault_chassis import memory_rules
from hippovault_storage.engine import Engine

NAME = pb.DESCRIPTOR.services_by_name["MaintenanceService"].full_name


class MaintenanceServicer(MaintenanceServiceServicer):
    """Serves one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def Verify(self, request: pb.VerifyRequest, context: object) -> Iterator[pb.VerifyResponse]:
        """See maintenance.proto."""
        return self._engine.verify()

    def RotateKey(self, request: pb.RotateKeyRequest, context: object) -> Iterator[pb.RotateKeyResponse]:
        """See maintenance.proto."""
        return self._engine.rotate_key(request)

    def Reindex(self, request: pb.ReindexRequest, context: object) -> Iterator[pb.ReindexResponse]:
        """See maintenance.proto."""
        return self._engine.reindex()

    def Backup(self, request: pb.BackupRequest, context: object) -> Iterator[pb.BackupResponse]:
        """See maintenance.proto."""
        return self._engine.backup()

    def ExportMemories(self, request: pb.ExportMemoriesRequest, context: object) -> Iterator[pb.ExportMemoriesResponse]:
        """See maintenance.proto."""
        if request.namespace:
            request.namespace = memory_rules.namespace(request.namespace)
        return self._engine.export_memories(request)

    def ImportMemories(
        self, request_iterator: Iterator[pb.ImportMemoriesRequest], context: object
    ) -> pb.ImportMemoriesResponse:
        """See maintenance.proto."""
        return self._engine.import_memories(request_iterator)
