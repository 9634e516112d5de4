"""Page tokens: a place in a listing, bound to what is listed."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage import times

FINGERPRINT_BYTES = 8
POSITION = struct.Struct(f">dq{FINGERPRINT_BYTES}s")
"""created_at and id of the last memory returned, and the listing's fingerprint."""


def token(request: pb.ListMemoriesRequest, last: memory_pb2.Memory) -> str:
    """Returns the token of the page that begins after a memory."""
    packed = POSITION.pack(times.seconds(last.created_at), last.id, _fingerprint(request))
    return base64.urlsafe_b64encode(packed).decode()


def position(request: pb.ListMemoriesRequest) -> tuple[float, int]:
    """Returns created_at and id of the memory after which the page begins.

    Raises:
        ServiceError: INVALID_ARGUMENT when the request's token is none, or belongs to another listing.
    """
    try:
        created_at, memory_id, fingerprint = POSITION.unpack(base64.urlsafe_b64decode(request.page_token))
    except (ValueError, binascii.Error, struct.error):
        raise ServiceError.invalid("page_token", "is not a token that a page returned") from None
    if fingerprint != _fingerprint(request):
        raise ServiceError.invalid("page_token", "belongs to a listing of another namespace or filter")
    return created_at, memory_id


def _fingerprint(request: pb.ListMemoriesRequest) -> bytes:
    listed = pb.ListMemoriesRequest(namespace=request.namespace, filter=request.filter)
    return hashlib.sha256(listed.SerializeToString(deterministic=True)).digest()[:FINGERPRINT_BYTES]
