"""The resources: one memory, and what the memory has recently, which tags, and how many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import grpc
import mcp_types

from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault_chassis.errors import ServiceError
from hippovault_gateway.application import Application
from hippovault_gateway.arguments import MAX_ID
from hippovault_gateway.entity_views import GetView
from hippovault_gateway.mcp import budget
from hippovault_gateway.views import ListView, PingView, SummaryView

SCHEME = "memory"
JSON = "application/json"
TEMPLATE = f"{SCHEME}://{{namespace}}/{{id}}"

Read = Callable[[Application, str], Awaitable[dict[str, Any]]]


async def _recent(application: Application, namespace: str) -> dict[str, Any]:
    page = await application.list_memories(pb.ListMemoriesRequest(namespace=namespace))
    return ListView.of(page).model_dump(mode="json", exclude_defaults=True)


async def _tags(application: Application, namespace: str) -> dict[str, Any]:
    return {"tags": SummaryView.of(await application.summarize_all(namespace)).top_tags}


async def _stats(application: Application, namespace: str) -> dict[str, Any]:
    summary = SummaryView.of(await application.summarize_all(namespace))
    ping = PingView.of(await application.ping(pb.PingRequest()))
    return {
        "namespace": {"total_memories": summary.total_memories, "by_type": summary.by_type},
        **ping.model_dump(mode="json"),
    }


LISTS: dict[str, tuple[str, str, Read]] = {
    "recent": ("Recent memories", "The newest 20 memories", _recent),
    "tags": ("Tags", "The commonest 100 tags and how many memories have each", _tags),
    "stats": ("Statistics", "How many memories there are, by type, and how the services are", _stats),
}
"""Title, description and reader by the last part of the URI."""


def listed() -> list[mcp_types.Resource]:
    """Returns the resources that have one URI, of the default namespace."""
    return [
        mcp_types.Resource(
            uri=f"{SCHEME}://{name}",
            name=name,
            title=title,
            description=f"{description}, in the default namespace.",
            mime_type=JSON,
        )
        for name, (title, description, _) in LISTS.items()
    ]


def templates() -> list[mcp_types.ResourceTemplate]:
    """Returns the forms of the other URIs."""
    return [
        mcp_types.ResourceTemplate(
            uri_template=TEMPLATE,
            name="memory",
            title="One memory",
            description=f"The memory with this id, whole. In place of an id: {', '.join(LISTS)} of the namespace.",
            mime_type=JSON,
        )
    ]


async def read(application: Application, uri: str) -> mcp_types.ReadResourceResult:
    """Returns what a URI names.

    Raises:
        ServiceError: NOT_FOUND when it names nothing.
    """
    namespace, name = _parts(uri)
    if name in LISTS:
        document = await LISTS[name][2](application, namespace)
        budget.fit(document, application.mcp_answer_bytes)
    else:
        request = pb.GetMemoryRequest(namespace=namespace, ref=memory_pb2.MemoryRef(id=_id(name)))
        document = GetView.of(await application.get_memory(request)).memory.model_dump(mode="json")
    text = budget.encoded(document)
    return mcp_types.ReadResourceResult(contents=[mcp_types.TextResourceContents(uri=uri, mime_type=JSON, text=text)])


def _parts(uri: str) -> tuple[str, str]:
    """Returns namespace and name; a list's name may stand alone."""
    try:
        parts = urlsplit(uri)
        namespace, name = unquote(parts.netloc, errors="strict"), parts.path.removeprefix("/")
    except ValueError:
        raise _unknown() from None
    if parts.scheme != SCHEME or parts.query or parts.fragment:
        raise _unknown()
    return ("", namespace) if namespace in LISTS and not name else (namespace, name)


def _id(name: str) -> int:
    if not (name.isascii() and name.isdecimal() and len(name) <= len(str(MAX_ID)) and 0 < int(name) <= MAX_ID):
        raise _unknown()
    return int(name)


def _unknown() -> ServiceError:
    known = ", ".join([*(f"{SCHEME}://{name}" for name in LISTS), TEMPLATE])
    return ServiceError(grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND", f"uri: must be one of {known}", field="uri")
