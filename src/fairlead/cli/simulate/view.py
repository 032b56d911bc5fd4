"""How a person sees a load: a live picture on a terminal, else a line now and then; four charts at the end.

Words go to stderr, so that stdout holds the result alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from fairlead.cli.output import Output
from fairlead.cli.simulate.chart import chart
from fairlead.cli.simulate.plan import Load
from fairlead.cli.simulate.series import Report, Sample, Series

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

LINE_EVERY_S = 2.0
WIDTH, HEIGHT = 60, 5


class View(Protocol):
    """Shows a run while it lasts."""

    def tell(self, words: str) -> None:
        """One thing that happened."""
        ...

    def show(self, series: Series) -> None:
        """How it stands, after another sample."""
        ...


@contextmanager
def view_of(load: Load, out: Output) -> Iterator[View]:
    """A live picture for a person at a terminal, else lines."""
    if not sys.stderr.isatty() or out.as_json or out.quiet or os.environ.get("TERM") == "dumb":
        yield Lines(load, out)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Picture(load, live)


class Lines:
    """Plain lines: each event, and each two seconds how it stands."""

    def __init__(self, load: Load, out: Output) -> None:
        self._load = load
        self._out = out
        self._next_s = 0.0

    def tell(self, words: str) -> None:
        self._out.say(words)

    def show(self, series: Series) -> None:
        last = series.samples[-1]
        if last.at_s < self._next_s:
            return
        self._next_s = last.at_s + LINE_EVERY_S
        told = ", ".join(f"{name} {value}" for name, value in figures(self._load, last).items())
        self._out.say(f"{last.at_s:5.1f} s  {told}")


class Picture:
    """A live picture."""

    def __init__(self, load: Load, live: Live) -> None:
        self._load = load
        self._live = live

    def tell(self, words: str) -> None:
        self._live.console.print(words, style="dim", highlight=False)

    def show(self, series: Series) -> None:
        self._live.update(self._picture(series), refresh=True)

    def _picture(self, series: Series) -> RenderableType:
        from rich.columns import Columns
        from rich.console import Group
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        load, last = self._load, series.samples[-1]
        numbers = Table.grid(padding=(0, 3))
        shown = figures(load, last)
        numbers.add_row(*(Text(name, style="dim") for name in shown))
        numbers.add_row(*(Text(value, style="bold") for value in shown.values()))
        charts = [
            Group(Text(title, style="bold"), Text("\n".join(lines), style="cyan", no_wrap=True))
            for title, lines in charts_of(load, series.samples, width=WIDTH // 2)
        ]
        title = f"{load.rate:g} calls/s of {load.tenants} tenants from {load.processes} processes"
        clock = f"{last.at_s:.0f} s of {load.seconds:g} s"
        parts = Group(numbers, Text(), Columns(charts, padding=(0, 4)))
        return Panel(parts, title=title, subtitle=clock, title_align="left", subtitle_align="right")


def figures(load: Load, last: Sample) -> dict[str, str]:
    """The latest sample in words."""
    level = "-" if last.level is None else f"{last.level:.1f} of {load.capacity:g}"
    shown = {
        "admitted/s": f"{last.admitted_per_s:.0f}",
        "refused/s": f"{last.refused_per_s:.0f}",
        "waiting": str(last.waiting),
        "bucket": level,
        "wait ms p50/p95/p99": "/".join(_ms(value) for value in (last.p50_ms, last.p95_ms, last.p99_ms)),
    }
    if load.slots:
        shown["slots held"] = "-" if last.held is None else str(last.held)
    return shown


def charts_of(load: Load, samples: list[Sample], *, width: int = WIDTH) -> list[tuple[str, list[str]]]:
    """Admitted, refused, level and waits over time, each with its title."""
    panels: list[tuple[str, Callable[[Sample], float | None], float]] = [
        (f"admitted/s (limit {load.per_s * load.tenants:g})", lambda one: one.admitted_per_s, 1.0),
        ("refused/s", lambda one: one.refused_per_s, 1.0),
        (f"bucket, mean of tenants (holds {load.capacity:g})", lambda one: one.level, load.capacity),
        ("wait, p95, ms", lambda one: one.p95_ms, 1.0),
    ]
    return [
        (title, chart([value(one) for one in samples], width=width, height=HEIGHT, least_top=top))
        for title, value, top in panels
    ]


def show_report(report: Report, out: Output) -> None:
    """The charts, and what the run came to."""
    load = report.load
    for title, lines in charts_of(load, report.series.samples):
        out.heading(title)
        out.text("\n".join(lines))
    out.record(report.summary())
    if report.held:
        out.say(verdict(report))


def verdict(report: Report) -> str:
    """In a sentence."""
    load, judged = report.load, report.judgement
    rate = f"{load.capacity:g} + {load.per_s:g}·W calls of a tenant in any W seconds"
    slots = f", and never more than {load.slots} in flight" if load.slots else ""
    if report.held:
        return f"the limit held: the upstream saw at most {rate}{slots}"
    told = []
    if not judged.rate_held:
        told.append(f"{judged.over_units:.2f} calls too many in some window, beyond {rate}")
    if not judged.slots_held:
        told.append(f"{judged.most_in_flight} calls of a tenant in flight on {load.slots} slots")
    return "the limit did not hold: " + "; ".join(told)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
