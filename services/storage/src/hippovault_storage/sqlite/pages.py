"""Pages of a listing, and their tokens: a place in the listing, bound to what is listed."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterable
from typing import TypeVar

from hippovault.memory.v1 import memory_pb2
from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.channels import MAX_ANSWER_BYTES
from hippovault_chassis.errors import ServiceError

Listing = pb.ListMemoriesRequest | pb.ListMemoryVersionsRequest
ItemT = TypeVar("ItemT", memory_pb2.Memory, memory_pb2.MemoryVersion)

FINGERPRINT_BYTES = 8
POSITION = struct.Struct(f">dq{FINGERPRINT_BYTES}s")
"""Instant and id of the last item returned, and the listing's fingerprint."""

PAGING = ("page_size", "page_token", "skip")
"""What of a request does not tell what is listed."""


def token(request: Listing, instant: float, memory_id: int) -> str:
    """Returns the token of the page that begins after an item."""
    packed = POSITION.pack(instant, memory_id, _fingerprint(request))
    return base64.urlsafe_b64encode(packed).decode()


def position(request: Listing) -> tuple[float, int]:
    """Returns instant and id of the item after which the page begins.

    Raises:
        ServiceError: INVALID_ARGUMENT when the request's token is none, or belongs to another listing.
    """
    try:
        instant, memory_id, fingerprint = POSITION.unpack(base64.urlsafe_b64decode(request.page_token))
    except (ValueError, binascii.Error, struct.error):
        raise ServiceError.invalid("page_token", "is not a token that a page returned") from None
    if fingerprint != _fingerprint(request):
        raise ServiceError.invalid("page_token", "belongs to a listing of something else")
    return instant, memory_id


def take(items: Iterable[ItemT], page_size: int) -> tuple[list[ItemT], bool]:
    """Returns the items of a page, as many as fit into an answer, and whether there are more."""
    page: list[ItemT] = []
    size = 0
    for item in items:
        size += item.ByteSize()
        if len(page) == page_size or (page and size > MAX_ANSWER_BYTES):
            return page, True
        page.append(item)
    return page, False


def _fingerprint(request: Listing) -> bytes:
    listed = type(request)()
    listed.CopyFrom(request)  # type: ignore[arg-type]  # They are of one type.
    for field, _ in request.ListFields():
        if field.name in PAGING:
            listed.ClearField(field.name)  # type: ignore[arg-type]  # It is the message's own.
    name = listed.DESCRIPTOR.full_name.encode()
    return hashlib.sha256(name + listed.SerializeToString(deterministic=True)).digest()[:FINGERPRINT_BYTES]
