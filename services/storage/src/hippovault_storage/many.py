"""Puts of many memories, in one request or in a stream. Each is what PutMemory does; one refused stops no other."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

import grpc

from hippovault.storage.v1 import storage_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_storage import checks
from hippovault_storage.capacity import MAX_STREAMS, Places
from hippovault_storage.engine import Engine

MAX_IN_FLIGHT = 128
MAX_IN_FLIGHT_BYTES = 4 * 1024 * 1024
"""Of the requests of one stream that wait for their turn, unless one alone has more."""


class Streams:
    """Streams of puts, of which each holds a thread as long as its client likes.

    Args:
        engine: Where the memories go.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._places = Places(MAX_STREAMS, "stream")

    def put(self, requests: Iterator[pb.StreamPutMemoriesRequest]) -> Iterator[pb.StreamPutMemoriesResponse]:
        """Puts what has come, in one transaction, while more comes; yields one answer a request, in order.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED when there are too many streams; a failure of the store, which ends this
                one. What was answered before is stored.
        """
        self._places.take()
        arrivals = _Arrivals(requests)
        try:
            while batch := arrivals.take():
                for result in put_each(self._engine, batch):
                    yield pb.StreamPutMemoriesResponse(result=result)
        finally:
            arrivals.close()
            self._places.give_back()


def put_each(engine: Engine, requests: Sequence[pb.PutMemoryRequest]) -> list[pb.PutMemoryResult]:
    """Puts memories, in order and in one transaction; returns one result a request."""
    refusals = [_refusal(request, engine.dimensions) for request in requests]
    accepted = [request for request, refusal in zip(requests, refusals, strict=True) if refusal is None]
    outcomes = iter(engine.put_memories(accepted) if accepted else ())
    return [_result(refusal or next(outcomes)) for refusal in refusals]


def _refusal(request: pb.PutMemoryRequest, dimensions: int) -> ServiceError | None:
    try:
        checks.put(request, dimensions)
    except ServiceError as error:
        return error
    return None


def _result(outcome: pb.PutMemoryResponse | ServiceError) -> pb.PutMemoryResult:
    if isinstance(outcome, ServiceError):
        return pb.PutMemoryResult(error=outcome.to_batch_error())
    memory = outcome.memory
    done = pb.PutMemoryOutcome(id=memory.id, outcome=outcome.outcome, version=memory.version)
    return pb.PutMemoryResult(done=done)


class _Arrivals:
    """Takes requests off a stream on a thread of its own, as many as may wait."""

    def __init__(self, requests: Iterable[pb.StreamPutMemoriesRequest]) -> None:
        self._waiting: list[pb.PutMemoryRequest] = []
        self._bytes = 0
        self._ended = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, args=(requests,), name="arrivals", daemon=True).start()

    def take(self) -> list[pb.PutMemoryRequest]:
        """Returns what has come, waiting for one; nothing at the end of the stream."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            taken, self._waiting, self._bytes = self._waiting, [], 0
            self._changed.notify()
            return taken

    def close(self) -> None:
        """Lets the thread end, which may be waiting for place."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _run(self, requests: Iterable[pb.StreamPutMemoriesRequest]) -> None:
        try:
            for message in requests:
                if not self._add(message.request):
                    break
        except grpc.RpcError:  # The client is gone, or what it sent is no request.
            pass
        finally:
            self.close()

    def _add(self, request: pb.PutMemoryRequest) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._has_place())
            self._waiting.append(request)
            self._bytes += request.ByteSize()
            self._changed.notify()
            return not self._ended

    def _has_place(self) -> bool:
        return len(self._waiting) < MAX_IN_FLIGHT and self._bytes < MAX_IN_FLIGHT_BYTES
