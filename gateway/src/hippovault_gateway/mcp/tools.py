"""The tools: one row each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import mcp_types

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
from hippovault_gateway.mcp import schemas
from hippovault_gateway.mcp.shodh import ListMemoriesArguments, RetrieveMemoryArguments, StoreMemoryArguments
from hippovault_gateway.settings import ToolSet
from hippovault_gateway.views import ForgetView, ListView, PingView, RecallView, RememberView, SummaryView, View


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
    tool_set: ToolSet = "hippo"
    """Where it is listed; `all` for everywhere."""
    read_only: bool = True
    destructive: bool = False
    levels: int = 2
    """How deep the result's schema goes."""

    def listed(self) -> mcp_types.Tool:
        """Returns what clients are told of it."""
        return mcp_types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=schemas.of_arguments(self.arguments),
            output_schema=schemas.of_result(self.view, self.levels),
            annotations=mcp_types.ToolAnnotations(
                read_only_hint=self.read_only,
                destructive_hint=self.destructive,
                idempotent_hint=True,  # To remember or to forget once more changes nothing more.
                open_world_hint=False,
            ),
        )


def _shodh(tool: Tool, name: str, title: str, arguments: type[Arguments]) -> Tool:
    return replace(
        tool,
        name=name,
        title=title,
        description=f"{tool.name} under its SHODH name.",
        arguments=arguments,
        tool_set="shodh",
        levels=1,
    )


REMEMBER = Tool(
    name="hippo_remember",
    title="Remember",
    description=(
        "Stores one fact, decision or preference for later sessions. The same content again merges its tags; "
        "the same category and key again updates it."
    ),
    arguments=RememberArguments,
    function=lambda application: application.remember,
    view=RememberView,
    read_only=False,
)
RECALL = Tool(
    name="hippo_recall",
    title="Recall",
    description="Finds the memories that answer a question, best first; surprising ones rank higher.",
    arguments=RecallArguments,
    function=lambda application: application.recall,
    view=RecallView,
)
LIST_RECENT = Tool(
    name="hippo_list_recent",
    title="List recent memories",
    description="Lists memories, newest first, page by page.",
    arguments=ListArguments,
    function=lambda application: application.list_memories,
    view=ListView,
)
FORGET = Tool(
    name="hippo_forget",
    title="Forget",
    description="Deletes one memory: it is found no more. Remembering it again brings it back.",
    arguments=ForgetArguments,
    function=lambda application: application.forget,
    view=ForgetView,
    read_only=False,
    destructive=True,
)
SESSION_SUMMARY = Tool(
    name="hippo_session_summary",
    title="Session summary",
    description="Sums up the last hours: counts, top tags and the most surprising memories.",
    arguments=SummaryArguments,
    function=lambda application: application.summarize_session,
    view=SummaryView,
)
PING = Tool(
    name="ping",
    title="Ping",
    description="Tells whether the memory's services answer, and how many memories there are.",
    arguments=PingArguments,
    function=lambda application: application.ping,
    view=PingView,
    tool_set="all",
)

TOOLS = (
    REMEMBER,
    RECALL,
    LIST_RECENT,
    FORGET,
    SESSION_SUMMARY,
    _shodh(REMEMBER, "store_memory", "Store memory", StoreMemoryArguments),
    _shodh(RECALL, "retrieve_memory", "Retrieve memory", RetrieveMemoryArguments),
    _shodh(LIST_RECENT, "list_memories", "List memories", ListMemoriesArguments),
    _shodh(FORGET, "delete_memory", "Delete memory", ForgetArguments),
    PING,
)


def of_set(tool_set: ToolSet) -> dict[str, Tool]:
    """Returns the tools of a set by name."""
    return {tool.name: tool for tool in TOOLS if "all" in (tool_set, tool.tool_set) or tool.tool_set == tool_set}
