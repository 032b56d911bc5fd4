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
    """What a view shows; filled in as the demo goes on."""

    plan: DemoPlan
    began_s: float | None = None
    watch: ConnectionWatch | None = None
    provider: IssuerTraffic | None = None
    tally: CallTally = field(default_factory=CallTally)
    retries: RetryCounts = field(default_factory=RetryCounts)
    workers: list[WorkerProcess] = field(default_factory=list)

    @property
    def age_s(self) -> float:
        """Seconds since the start of the run; 0 before it."""
        return 0.0 if self.began_s is None else time.monotonic() - self.began_s

    @property
    def clock(self) -> str:
        """The age for the beginning of a line."""
        return "         " if self.began_s is None else f"{self.age_s:5.1f} s  "


class DemoView(LiveView):
    """A view of *scene* while the demo runs."""

    line_every_s = 5.0

    def __init__(self, scene: DemoState, out: Output) -> None:
        super().__init__(out)
        self._scene = scene

    def tell(self, words: str) -> None:
        """Print one event as a line, with its time."""
        self.clock = self._scene.clock
        super().tell(words)
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)

    def _line(self) -> str:
        return _in_words(self._scene)

    def _picture(self) -> RenderableType:
        scene = self._scene
        title = "fairlead demo · 20 tenants × 10 connections · one rude provider for all"
        clock = f"{scene.age_s:.0f} s of {scene.plan.seconds:g} s" if scene.began_s else "getting ready"
        parts: list[RenderableType] = [Text(LINE, style="dim")]
        if scene.watch is not None and scene.began_s:
            blocks = [figures_table(name, rows) for name, rows in _blocks(scene).items()]
            parts.append(Columns(blocks, padding=(0, 4)))
        return Panel(Group(*parts), title=title, subtitle=clock, title_align="left", subtitle_align="right")


def _blocks(scene: DemoState) -> dict[str, list[tuple[str, object]]]:
    """What the picture shows, in columns of names and figures."""
    assert scene.watch is not None
    watch, last = scene.watch, scene.watch.last
    answers = scene.provider.statuses if scene.provider else {}
    alive = {each.identity.pid: each for each in last.sessions if each.state in ("alive", "late")}
    return {
        "connections": [
            (state.replace("_", " "), last.states.get(state, 0))
            for state in ("active", "unknown", "needs_reauth")
        ],
        "refreshes": [("per second", f"{watch.refreshes_per_s:.1f}"), ("generations", last.generations)],
        "provider": [
            ("posts", scene.provider.posts if scene.provider else 0),
            *((str(status), answers[status]) for status in (200, 401, 400, 429, 503) if status in answers),
        ],
        "retries": [(name.removeprefix("transient_"), n) for name, n in scene.retries.by_category.items()]
        or [("none", "")],
        "jobs": [(label, n) for label, n in last.jobs.items() if n] or [("none", "")],
        "callers": [
            ("served", scene.tally.outcomes["ok"]),
            ("told to wait", scene.tally.outcomes["later"]),
            ("expired", len(scene.tally.expired)),
        ],
        "processes": [
            (f"{worker.name} ({worker.pid})", _pulse(alive[worker.pid].heartbeat_age_s))
            if worker.pid in alive and worker.running
            else (f"{worker.name} ({worker.pid})", "begins" if worker.running else worker.end)
            for worker in scene.workers
        ],
    }


def _pulse(age_s: float) -> str:
    return f"beat {age_s:.1f} s ago"


def _in_words(scene: DemoState) -> str:
    """How it stands, in one line."""
    assert scene.watch is not None
    last = scene.watch.last
    states = ", ".join(f"{n} {state.replace('_', ' ')}" for state, n in last.states.items())
    retries = sum(scene.retries.by_category.values())
    return (
        f"{states}; {last.generations} generations, {scene.watch.refreshes_per_s:.1f} refreshes/s; "
        f"{retries} retries, {sum(last.dead_letters.values())} dead letters; "
        f"{scene.tally.outcomes['ok']} tokens served"
    )


# ---- the end -------------------------------------------------------------------------------------

WANTED: Mapping[str, str] = {
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
"""What the second table shows, under shorter names: it has to fit a terminal."""


def show_report(report: DemoReport, out: Output) -> None:
    """The figures of the run, and those of each policy, as two tables."""
    rows = [
        {"figure": name, "value": _value(name, value), "must be": WANTED.get(name, "")}
        for name, value in report.figures.items()
    ]
    out.rows(rows, ("figure", "value", "must be"))
    short = ({name: each[name_of] for name, name_of in COLUMNS.items()} for each in report.policies)
    out.rows(short, tuple(COLUMNS))
    if not report.violations:
        out.say(_last_word(report))


def _last_word(report: DemoReport) -> str:
    lost, in_flight = report.figures["lost_rotation"], report.figures["refreshes_in_flight_at_kill"]
    if not lost:
        return "every promise was kept, and the kill cost nothing"
    return (
        f"every promise was kept; of {in_flight} refreshes in flight at the kill {lost} could not be brought "
        "back, because their providers give an answer once: these customers are asked to connect again"
    )


def _value(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{n} {key}" for key, n in value.items()) or "none"
    return f"{value} s" if name.endswith("_s") and value is not None else str(value)
