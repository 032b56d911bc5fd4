"""The view of the demo: live, and as two tables at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from fairlead.cli.kit.live_view import LiveView, figures_table
from fairlead.cli.kit.output import Output
from fairlead.demo.demo_plan import DemoPlan
from fairlead.demo.file_tail import IssuerTraffic, RetryCounts
from fairlead.demo.profile import LINE
from fairlead.demo.report import DemoReport
from fairlead.demo.token_callers import CallTally
from fairlead.demo.watch import ConnectionWatch
from fairlead.demo.worker import WorkerProcess


@dataclass(slots=True)
class DemoState:
    """The values that the view shows, set while the demo runs."""

    plan: DemoPlan
    started_mono: float | None = None
    watch: ConnectionWatch | None = None
    traffic: IssuerTraffic | None = None
    tally: CallTally = field(default_factory=CallTally)
    retries: RetryCounts = field(default_factory=RetryCounts)
    workers: list[WorkerProcess] = field(default_factory=list)

    @property
    def age_s(self) -> float:
        """Seconds since the start of the run; 0 before it."""
        return 0.0 if self.started_mono is None else time.monotonic() - self.started_mono

    @property
    def clock(self) -> str:
        """The age as the prefix of a line."""
        return "         " if self.started_mono is None else f"{self.age_s:5.1f} s  "


class DemoView(LiveView):
    """A view of *state* while the demo runs."""

    line_every_s = 5.0

    def __init__(self, state: DemoState, out: Output) -> None:
        super().__init__(out)
        self._state = state

    def tell(self, words: str) -> None:
        """Print one event as a line, with its time."""
        self.clock = self._state.clock
        super().tell(words)
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)

    def _line(self) -> str:
        return _in_words(self._state)

    def _picture(self) -> RenderableType:
        state = self._state
        title = "fairlead demo · 20 tenants × 10 connections · one faulty provider for all"
        clock = f"{state.age_s:.0f} s of {state.plan.seconds:g} s" if state.started_mono else "starting"
        parts: list[RenderableType] = [Text(LINE, style="dim")]
        if state.watch is not None and state.started_mono:
            blocks = [figures_table(name, rows) for name, rows in _blocks(state).items()]
            parts.append(Columns(blocks, padding=(0, 4)))
        return Panel(Group(*parts), title=title, subtitle=clock, title_align="left", subtitle_align="right")


def _blocks(state: DemoState) -> dict[str, list[tuple[str, object]]]:
    """Return the columns of names and figures of the picture."""
    assert state.watch is not None
    watch, last = state.watch, state.watch.last
    statuses = state.traffic.statuses if state.traffic else {}
    alive = {session.identity.pid: session for session in last.sessions if session.state in ("alive", "late")}
    return {
        "connections": [
            (state.replace("_", " "), last.states.get(state, 0))
            for state in ("active", "unknown", "needs_reauth")
        ],
        "refreshes": [("per second", f"{watch.refreshes_per_s:.1f}"), ("generations", last.generations)],
        "provider": [
            ("posts", state.traffic.posts if state.traffic else 0),
            *((str(status), statuses[status]) for status in (200, 401, 400, 429, 503) if status in statuses),
        ],
        "retries": [(name.removeprefix("transient_"), n) for name, n in state.retries.by_category.items()]
        or [("none", "")],
        "jobs": [(label, n) for label, n in last.jobs.items() if n] or [("none", "")],
        "callers": [
            ("served", state.tally.outcomes["ok"]),
            ("retry later", state.tally.outcomes["later"]),
            ("expired", len(state.tally.expired)),
        ],
        "processes": [
            (f"{worker.name} ({worker.pid})", _pulse(alive[worker.pid].heartbeat_age_s))
            if worker.pid in alive and worker.is_running
            else (f"{worker.name} ({worker.pid})", "starting" if worker.is_running else worker.ending)
            for worker in state.workers
        ],
    }


def _pulse(age_s: float) -> str:
    return f"beat {age_s:.1f} s ago"


def _in_words(state: DemoState) -> str:
    """Return the state in one line."""
    assert state.watch is not None
    last = state.watch.last
    states = ", ".join(f"{n} {state.replace('_', ' ')}" for state, n in last.states.items())
    retries = sum(state.retries.by_category.values())
    return (
        f"{states}; {last.generations} generations, {state.watch.refreshes_per_s:.1f} refreshes/s; "
        f"{retries} retries, {sum(last.dead_letters.values())} dead letters; "
        f"{state.tally.outcomes['ok']} tokens served"
    )


# ---- the end -------------------------------------------------------------------------------------

EXPECTED: Mapping[str, str] = {
    "burnt_outside_window": "0",
    "expired_served": "0",
    "needs_reauth": "revoked_by_customer + lost_rotation",
}

COLUMNS: Mapping[str, str] = {
    "policy": "policy",
    "provider": "provider",
    "generations": "generations",
    "posts": "provider_posts",
    "failures": "answered_failures",
    "replays": "replays",
    "lost": "lost_rotation",
    "reauth": "needs_reauth",
}
"""The columns of the second table, under names that fit a terminal."""


def show_report(report: DemoReport, out: Output) -> None:
    """Print the figures of the run, and those of each policy, as two tables."""
    rows = [
        {"figure": name, "value": _value(name, value), "must be": EXPECTED.get(name, "")}
        for name, value in report.figures.items()
    ]
    out.rows(rows, ("figure", "value", "must be"))
    policies = ({name: row[field] for name, field in COLUMNS.items()} for row in report.policies)
    out.rows(policies, tuple(COLUMNS))
    if not report.violations:
        out.say(_conclusion(report))


def _conclusion(report: DemoReport) -> str:
    lost, in_flight = report.figures["lost_rotation"], report.figures["refreshes_in_flight_at_kill"]
    if not lost:
        return "every promise was kept, and the kill lost nothing"
    return (
        f"every promise was kept; of {in_flight} refreshes in flight at the kill {lost} could not be recovered, "
        "because their providers send a new token only once: these customers must connect again"
    )


def _value(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{n} {key}" for key, n in value.items()) or "none"
    return f"{value} s" if name.endswith("_s") and value is not None else str(value)
