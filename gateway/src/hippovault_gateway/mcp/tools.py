"""The tools: one row each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import mcp_types

from hippovault_chassis.errors import ServiceError
from hippovault_chassis.memory_rules import MAX_SHOWN
from hippovault_gateway.application import Application
from hippovault_gateway.arguments import (
    Arguments,
    ForgetArguments,
    ListArguments,
    PingArguments,
    RecallArguments,
    RememberArguments,
    SummaryArguments,
)
from hippovault_gateway.documents import parse
from hippovault_gateway.entity_arguments import (
    GetArguments,
    HistoryArguments,
    ScanArguments,
    SearchArguments,
    UndeleteArguments,
    UpdateArguments,
)
from hippovault_gateway.entity_views import GetView, HistoryView, ScanView, UndeleteView, UpdateView
from hippovault_gateway.mcp import schemas
from hippovault_gateway.mcp.shodh import ListMemoriesArguments, RetrieveMemoryArguments, StoreMemoryArguments
from hippovault_gateway.settings import ToolSet
from hippovault_gateway.views import (
    BriefRecallView,
    ForgetView,
    ListView,
    PingView,
    RecallView,
    RememberView,
    SummaryView,
    View,
)

FILTERS = ("namespace", "tags", "tags_all", "memory_type", "category", "status", "since", "before")
"""Arguments of a search and of a scan."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """What a tool is called, takes, calls and answers."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    function: Callable[[Application], Callable[[Any], Awaitable[Any]]]
    """Picks the application's function."""
    view: type[View]
    """The JSON form of what the function returns."""
    explained: type[View] | None = None
    """The JSON form where the argument `explain` is true."""
    tool_set: ToolSet = "hippo"
    """Where it is listed; `all` for everywhere."""
    shown: tuple[str, ...] = ()
    """The arguments that it takes, of those that `arguments` has; all when empty."""
    answers: tuple[str, ...] = ()
    """The members of the answer that are listed; all when empty."""
    read_only: bool = True
    destructive: bool = False
    levels: int = 1
    """How deep the result's schema goes."""

    def listed(self) -> mcp_types.Tool:
        """Returns what clients are told of it."""
        return mcp_types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=schemas.of_arguments(self.arguments, self.shown),
            output_schema=schemas.of_result(self.view, self.levels, self.answers),
            annotations=mcp_types.ToolAnnotations(
                read_only_hint=self.read_only,
                destructive_hint=self.destructive,
                idempotent_hint=True,  # To remember or to forget once more changes nothing more.
                open_world_hint=False,
            ),
        )

    def given(self, arguments: Mapping[str, Any]) -> Arguments:
        """Returns the checked arguments of a call.

        Raises:
            ServiceError: INVALID_ARGUMENT naming the first one that is wrong.
        """
        if self.shown:
            for name in arguments:
                if name not in self.shown:
                    raise ServiceError.invalid(name[:MAX_SHOWN], "unknown argument")
        return parse(self.arguments, arguments)

    def view_for(self, arguments: Arguments) -> type[View]:
        """Returns the form of the answer to a call."""
        explain = isinstance(arguments, SearchArguments) and arguments.explain
        return self.explained if explain and self.explained else self.view


def _shodh(tool: Tool, name: str, title: str, arguments: type[Arguments]) -> Tool:
    return replace(
        tool,
        name=name,
        title=title,
        arguments=arguments,
        shown=(),
        tool_set="shodh",
    )


REMEMBER = Tool(
    name="hippo_remember",
    title="Remember",
    description=(
        "Stores one fact, decision or preference for later sessions, in sentences that stand alone. "
        "The same content again merges its tags; the same category and key again replaces content and fields."
    ),
    arguments=RememberArguments,
    function=lambda application: application.remember,
    view=RememberView,
    answers=("memory", "outcome", "truncated"),
    read_only=False,
)
RECALL = Tool(
    name="hippo_recall",
    title="Recall",
    description="Finds the memories that answer a question, best first; surprising ones rank higher.",
    arguments=RecallArguments,
    function=lambda application: application.recall,
    view=BriefRecallView,
    shown=("query", "limit", "mode", "tags", "memory_type", "no_surprise_boost", "max_bytes", "namespace"),
    answers=("hits", "degraded", "omitted_hits"),
    levels=2,
)
SEARCH = Tool(
    name="hippo_search",
    title="Search",
    description=(
        "hippo_recall with every filter and, where asked, the reasons for each hit's place. "
        "tags: any of them; tags_all: all; category and status: one of them; since and before: ISO 8601, of created_at."
    ),
    arguments=SearchArguments,
    function=lambda application: application.recall,
    view=BriefRecallView,
    explained=RecallView,
    shown=("query", "limit", "mode", "no_surprise_boost", "oversample_factor", *FILTERS, "explain", "max_bytes"),
    answers=("hits", "degraded", "omitted_hits"),
)
GET_ENTITY = Tool(
    name="hippo_get_entity",
    title="Get one memory",
    description="Shows one memory whole, named by id, content_hash, or category with key; as_of shows it as it was.",
    arguments=GetArguments,
    function=lambda application: application.get_memory,
    view=GetView,
)
LIST_RECENT = Tool(
    name="hippo_list_recent",
    title="List recent memories",
    description="Lists memories, newest first, page by page.",
    arguments=ListArguments,
    function=lambda application: application.list_memories,
    view=ListView,
    answers=("memories", "next_page_token"),
)
SCAN = Tool(
    name="hippo_scan",
    title="Scan",
    description="Lists what hippo_search's filters let through, such as a category, newest first, page by page.",
    arguments=ScanArguments,
    function=lambda application: application.list_memories,
    view=ScanView,
    shown=("limit", "page_token", *FILTERS, "visibility", "max_bytes"),
    answers=("memories", "next_page_token"),
)
UPDATE = Tool(
    name="hippo_update",
    title="Update",
    description=(
        "Changes the given fields of one memory, named by id, content_hash, or category with key. "
        "Former contents stay in its history."
    ),
    arguments=UpdateArguments,
    function=lambda application: application.update_memory,
    view=UpdateView,
    answers=("memory", "changed"),
    read_only=False,
    destructive=True,
)
HISTORY = Tool(
    name="hippo_history",
    title="History",
    description="Lists the contents that one memory, live or deleted, has and had, newest first.",
    arguments=HistoryArguments,
    function=lambda application: application.list_memory_versions,
    view=HistoryView,
)
FORGET = Tool(
    name="hippo_forget",
    title="Forget",
    description="Deletes one memory: it is found no more. hippo_undelete or remembering it again brings it back.",
    arguments=ForgetArguments,
    function=lambda application: application.forget,
    view=ForgetView,
    answers=("ids",),
    read_only=False,
    destructive=True,
)
UNDELETE = Tool(
    name="hippo_undelete",
    title="Undelete",
    description="Brings a forgotten memory back as it was.",
    arguments=UndeleteArguments,
    function=lambda application: application.undelete,
    view=UndeleteView,
    answers=("ids",),
    read_only=False,
)
SESSION_SUMMARY = Tool(
    name="hippo_session_summary",
    title="Session summary",
    description="Sums up the last hours: counts, top tags and the most surprising memories.",
    arguments=SummaryArguments,
    function=lambda application: application.summarize_session,
    view=SummaryView,
    answers=("total_memories", "top_tags", "highlights"),
)
PING = Tool(
    name="ping",
    title="Ping",
    description="Tells whether the memory's services answer, and how many memories there are.",
    arguments=PingArguments,
    function=lambda application: application.ping,
    view=PingView,
    answers=("services",),
    tool_set="all",
)

TOOLS = (
    REMEMBER,
    RECALL,
    SEARCH,
    GET_ENTITY,
    LIST_RECENT,
    SCAN,
    UPDATE,
    HISTORY,
    FORGET,
    UNDELETE,
    SESSION_SUMMARY,
    _shodh(REMEMBER, "store_memory", "Store memory", StoreMemoryArguments),
    _shodh(replace(RECALL, view=RecallView), "retrieve_memory", "Retrieve memory", RetrieveMemoryArguments),
    _shodh(LIST_RECENT, "list_memories", "List memories", ListMemoriesArguments),
    _shodh(FORGET, "delete_memory", "Delete memory", ForgetArguments),
    PING,
)


def of_set(tool_set: ToolSet) -> dict[str, Tool]:
    """Returns the tools of a set by name."""
    return {tool.name: tool for tool in TOOLS if "all" in (tool_set, tool.tool_set) or tool.tool_set == tool_set}


def listed(tool_set: ToolSet) -> list[mcp_types.Tool]:
    """Returns what is listed of a set: of `all` each tool once, under its own name, since a list costs context."""
    return [tool.listed() for tool in of_set("hippo" if tool_set == "all" else tool_set).values()]
