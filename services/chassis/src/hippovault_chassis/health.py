"""Asks another process by the standard health protocol whether it serves."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


async def serves(channel: grpc.aio.Channel, service: str, seconds: float) -> bool:
    """Tells whether a service says in time that it serves; it does no work for that.

    Args:
        channel: To its process.
        service: Its full name.
        seconds: What the answer gets.
    """
    request = health_pb2.HealthCheckRequest(service=service)
    try:
        answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=seconds)
    except grpc.aio.AioRpcError:
        return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
