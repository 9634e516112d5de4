"""`hippovault summary`: what was remembered lately."""

from __future__ import annotations

from hippovault_gateway.arguments import SummaryArguments
from hippovault_gateway.cli.asking import ask
from hippovault_gateway.cli.listing import show_memories, when
from hippovault_gateway.cli.options import CLIENT_DEFAULTS, ClientOptions
from hippovault_gateway.cli.output import counted, show_json, show_line
from hippovault_gateway.views import SummaryView


def summary(
    *,
    namespace: str = "",
    hours: float | None = None,
    full: bool = False,
    options: ClientOptions = CLIENT_DEFAULTS,
) -> None:
    """Sums up what was remembered in the last hours: counts, top tags, and the most surprising memories.

    Args:
        namespace: Scope (default: "default").
        hours: Hours to look back (default: 24).
        full: Show contents whole; otherwise long ones are cut in the table, never in JSON.
        options: Which memory, and how to answer.
    """
    values = {"namespace": namespace, "hours": hours}
    view = SummaryView.of(ask(lambda stub: stub.SummarizeSession, SummaryArguments, values, options))
    if options.json:
        show_json(view.model_dump())
        return
    surprise = [f"{memory.surprise.score:.3f}" if memory.surprise else "" for memory in view.highlights]
    show_memories(view.highlights, namespace, {"surprise": surprise}, full=full)
    if view.by_type:
        show_line("by type: " + _counts({name or "(none)": count for name, count in view.by_type.items()}))
    if view.top_tags:
        show_line("top tags: " + _counts(view.top_tags))
    total = counted(view.total_memories, "memory", "memories")
    show_line(f"{total} since {when(view.since)} (UTC), mean surprise {view.mean_surprise:.3f}")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
