"""``fairlead top``: what the fleet does now, looked at once a second. Reads only; bounded at each look."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, single
from fairlead.cli.kit.live_view import figures_table
from fairlead.cli.kit.output import Output, Record, printable, rich_table
from fairlead.cli.status import processes, with_trouble
from fairlead.cli.tenants.fairness import WAITING, turn_record
from fairlead.errors import DependencyUnavailableError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fairlead.app import Fairlead
    from fairlead.assembly.runtime import Runtime

app = single()

EVERY_S = 1.0
MOST_DUE = 1000
MOST_ACTS = 2000
MOST_TENANTS = 10
RATE_OVER_S = 10.0
PRIORITIES = ("critical", "urgent", "normal")

Found = Mapping[str, Any]


@command(app, "top")
def top(
    call: Invocation,
    once: Annotated[bool, typer.Option("--once", help="Look once and end, as in a pipe.")] = False,
) -> Exit | None:
    """Watch connections, refreshes, jobs, dead letters, processes, tenants and token endpoints, live.

    Ends with Ctrl-C. In a pipe, with --once or with --json it looks once.
    """
    if once or call.out.as_json or not sys.stdout.isatty():
        found = call.with_fairlead(look)
        if call.out.as_json:
            call.out.record(found)
        else:
            _show(call.out, found)
        return None
    try:
        call.with_fairlead(_watch)
    except KeyboardInterrupt:  # the way to end it
        return None
    return None


# ---- one look ------------------------------------------------------------------------------------


async def look(fairlead: Fairlead) -> dict[str, Any]:
    """How it stands now. Counts stop at a bound, and say so where they did (``due_more``)."""
    runtime = fairlead.runtime
    due = await runtime.credentials.due(
        urgent_only=False,
        cool_down_s=runtime.settings.refresh.retry_dead_after_s,
        cursor=None,
        limit=MOST_DUE,
    )
    waiting = Counter(min(one.priority, len(PRIORITIES) - 1) for one in due.connections)
    endpoints = [dict(endpoint) for endpoint in await runtime.endpoints.search()]
    return {
        "connections": dict(await runtime.credentials.counts()),
        "due": {name: waiting[level] for level, name in enumerate(PRIORITIES)},
        "due_more": due.next_cursor is not None,
        "refreshes_per_s": await _refreshes_per_s(runtime),
        "jobs": dict(await runtime.jobs.counts()),
        "dead_letters": dict(await runtime.dead_letters.counts()),
        "processes": await processes(runtime),
        "tenants": await _tenants(runtime),
        "endpoints": len(endpoints),
        "endpoints_closed_off": [one for one in endpoints if one["state"] != "closed"],
    }


async def _refreshes_per_s(runtime: Runtime) -> float:
    """Over the last 10 s, or as far back as the newest records of the audit trail reach."""
    acts = await runtime.audit.search(tenant=None, limit=MOST_ACTS)
    schedules = await runtime.schedule_store.schedules()
    if not acts:
        return 0.0
    now = max([acts[0][0], *(state.now for state in schedules)])  # the database's, where anything tells
    since = now - timedelta(seconds=RATE_OVER_S)
    if len(acts) == MOST_ACTS:
        since = max(since, acts[-1][0])
    refreshed = sum(at > since and record.act == "token.refreshed" for at, record in acts)
    over_s = max((now - since) / timedelta(seconds=1), 0.1)
    return round(refreshed / over_s, 1)


async def _tenants(runtime: Runtime) -> list[Record]:
    """Those that have work, who waits longest for a turn first."""
    turns = await runtime.lanes.turns(queue=None, tenant_id=None, limit=MOST_TENANTS)
    return [turn_record(turn) for turn in turns if turn.waiting or turn.running]


# ---- for people ----------------------------------------------------------------------------------

_PROCESS = ("host", "pid", "state", "running_jobs", "heartbeat_age_s", "version", "app_version")
_ENDPOINT = ("provider", "client_id", "state", "failures", "open_for_s", "reason")


def _show(out: Output, found: Found) -> None:
    """One look as text."""
    out.record({name: _in_words(found[name]) for name in ("connections", "due", "jobs", "dead_letters")})
    out.record({"refreshes per second": found["refreshes_per_s"]})
    shown = {**found, "processes": with_trouble(found["processes"])}
    for title, columns in (
        ("processes", _PROCESS),
        ("tenants", WAITING),
        ("endpoints_closed_off", _ENDPOINT),
    ):
        if shown[title]:
            out.heading(title)
            out.rows(shown[title], columns)


def _in_words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count) or "none"


async def _watch(fairlead: Fairlead) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    seen: RenderableType = Text("looking")
    words = Text("Ctrl-C ends", style="dim")
    with Live(auto_refresh=False, screen=True) as live:
        while True:
            try:
                seen = _picture(await look(fairlead))
                words = Text("Ctrl-C ends", style="dim")
            except DependencyUnavailableError as away:  # what was seen last stays, and says so
                words = Text(printable(f"as it was before: {away.message}"), style="red")
            live.update(Group(seen, words), refresh=True)
            await asyncio.sleep(EVERY_S)


def _picture(found: Found) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    figures = Table.grid(padding=(0, 4))
    more = "+" if found["due_more"] else ""
    figures.add_row(
        figures_table("connections", found["connections"].items()),
        figures_table("due", [(name, f"{count}{more}") for name, count in found["due"].items()]),
        figures_table("jobs", found["jobs"].items()),
        figures_table("dead letters", found["dead_letters"].items()),
        figures_table("refreshes", [("per second", found["refreshes_per_s"])]),
    )
    parts: list[RenderableType] = [
        figures,
        rich_table(with_trouble(found["processes"]), _PROCESS, "processes"),
    ]
    if found["tenants"]:
        parts.append(rich_table(found["tenants"], WAITING, "tenants that have work"))
    if found["endpoints_closed_off"]:
        parts.append(rich_table(found["endpoints_closed_off"], _ENDPOINT, "token endpoints closed off"))
    return Group(*parts)
