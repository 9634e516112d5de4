"""What a new memory's surprise is measured against: the memories that its namespace holds."""

from __future__ import annotations

from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_storage.sqlite import distances, models, nearest
from hippovault_storage.sqlite.connections import Connection
from hippovault_storage.sqlite.dense.index import CodeIndex


def compare(connection: Connection, index: CodeIndex, request: pb.CompareToNewestRequest) -> pb.CompareToNewestResponse:
    """Returns cosine similarities to the newest and to the nearest live memories, as many as asked for.

    Raises:
        ServiceError: FAILED_PRECONDITION when the vector is of another model than the store's.
    """
    moment, to = nearest.begin(connection), distances.vector(request.vector)
    models.check(connection, request.model_revision)
    response = pb.CompareToNewestResponse()
    if request.newest:
        newest = distances.of_newest(connection, to, request.namespace, request.newest)
        response.cosine_similarities.extend(newest.tolist())
    if request.nearest:
        search = pb.SearchMemoriesRequest(namespace=request.namespace, dense=pb.DenseArm(k=request.nearest))
        found = nearest.find(connection, index, search, to, moment)
        response.nearest_cosine_similarities.extend(found.values())
    return response
