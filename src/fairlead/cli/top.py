"""``fairlead top``: a live view of all processes, updated once a second. It only reads, and reads bounded pages."""

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
from fairlead.cli.processes import processes, with_trouble
from fairlead.cli.tenants.fairness import WAITING, turn_record
from fairlead.errors import DependencyUnavailableError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fairlead.assembly.runtime import Runtime

app = single()

EVERY_S = 1.0
MOST_DUE = 1000
MOST_AUDIT_RECORDS = 2000
MOST_TENANTS = 10
RATE_OVER_S = 10.0
PRIORITIES = ("critical", "urgent", "normal")

Snapshot = Mapping[str, Any]


@command(app, "top")
def top(
    call: Invocation,
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot and end, as in a pipe.")] = False,
) -> Exit | None:
    """Watch connections, refreshes, jobs, dead letters, processes, tenants and token endpoints, live.

    Ends with Ctrl-C. In a pipe, with --once or with --json it prints one snapshot.
    """
    if once or call.out.as_json or not sys.stdout.isatty():
        snapshot = call.with_runtime(read_snapshot)
        if call.out.as_json:
            call.out.record(snapshot)
        else:
            _show(call.out, snapshot)
        return None
    try:
        call.with_runtime(_watch)
    except KeyboardInterrupt:  # the way to end it
        return None
    return None


# ---- one snapshot ------------------------------------------------------------------------------------


async def read_snapshot(runtime: Runtime) -> dict[str, Any]:
    """Return the present state. ``due_more`` is true if the count of due connections reached its bound."""
    due = await runtime.credentials.due(
        urgent_only=False,
        cool_down_s=runtime.settings.refresh.retry_dead_after_s,
        cursor=None,
        limit=MOST_DUE,
    )
    waiting = Counter(min(connection.priority, len(PRIORITIES) - 1) for connection in due.connections)
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
        "endpoints_closed_off": [row for row in endpoints if row["state"] != "closed"],
    }


async def _refreshes_per_s(runtime: Runtime) -> float:
    """Return the rate over the last 10 s, or over the time that the newest audit records cover."""
    records = await runtime.audit.search(tenant=None, limit=MOST_AUDIT_RECORDS)
    schedules = await runtime.schedule_store.schedules()
    if not records:
        return 0.0
    now = max([records[0][0], *(state.now for state in schedules)])  # the database's clock
    since = now - timedelta(seconds=RATE_OVER_S)
    if len(records) == MOST_AUDIT_RECORDS:
        since = max(since, records[-1][0])
    refreshed = sum(at > since and record.act == "token.refreshed" for at, record in records)
    over_s = max((now - since) / timedelta(seconds=1), 0.1)
    return round(refreshed / over_s, 1)


async def _tenants(runtime: Runtime) -> list[Record]:
    """Return the tenants that have work; the one that waits longest for a turn comes first."""
    turns = await runtime.lanes.turns(queue=None, tenant_id=None, limit=MOST_TENANTS)
    return [turn_record(turn) for turn in turns if turn.waiting or turn.running]


# ---- for people ----------------------------------------------------------------------------------

_PROCESS = ("host", "pid", "state", "running_jobs", "heartbeat_age_s", "version", "app_version")
_ENDPOINT = ("provider", "client_id", "state", "failures", "open_for_s", "reason")


def _show(out: Output, snapshot: Snapshot) -> None:
    """Print a snapshot as text."""
    out.record({name: _in_words(snapshot[name]) for name in ("connections", "due", "jobs", "dead_letters")})
    out.record({"refreshes per second": snapshot["refreshes_per_s"]})
    shown = {**snapshot, "processes": with_trouble(snapshot["processes"])}
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


async def _watch(runtime: Runtime) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    picture: RenderableType = Text("loading")
    words = Text("Ctrl-C ends", style="dim")
    with Live(auto_refresh=False, screen=True) as live:
        while True:
            try:
                picture = _picture(await read_snapshot(runtime))
                words = Text("Ctrl-C ends", style="dim")
            except DependencyUnavailableError as error:  # the last picture stays, marked as old
                words = Text(printable(f"not updated: {error.message}"), style="red")
            live.update(Group(picture, words), refresh=True)
            await asyncio.sleep(EVERY_S)


def _picture(snapshot: Snapshot) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    figures = Table.grid(padding=(0, 4))
    more = "+" if snapshot["due_more"] else ""
    figures.add_row(
        figures_table("connections", snapshot["connections"].items()),
        figures_table("due", [(name, f"{count}{more}") for name, count in snapshot["due"].items()]),
        figures_table("jobs", snapshot["jobs"].items()),
        figures_table("dead letters", snapshot["dead_letters"].items()),
        figures_table("refreshes", [("per second", snapshot["refreshes_per_s"])]),
    )
    parts: list[RenderableType] = [
        figures,
        rich_table(with_trouble(snapshot["processes"]), _PROCESS, "processes"),
    ]
    if snapshot["tenants"]:
        parts.append(rich_table(snapshot["tenants"], WAITING, "tenants that have work"))
    if snapshot["endpoints_closed_off"]:
        parts.append(rich_table(snapshot["endpoints_closed_off"], _ENDPOINT, "token endpoints closed off"))
    return Group(*parts)
