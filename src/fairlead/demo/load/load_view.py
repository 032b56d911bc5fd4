"""The view of a load: live, and as four charts at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fairlead.cli.kit.live_view import LiveView
from fairlead.cli.kit.output import Output
from fairlead.demo.load.chart import chart
from fairlead.demo.load.load_plan import Load
from fairlead.demo.load.series import LoadReport, LoadSample, LoadSeries

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH, HEIGHT = 60, 5


class LoadView(LiveView):
    """A view of a load while it runs."""

    line_every_s = 2.0

    def __init__(self, load: Load, out: Output) -> None:
        super().__init__(out)
        self._load = load
        self.series = LoadSeries(load)

    def _line(self) -> str:
        values = figures(self._load, self.series.samples[-1])
        return ", ".join(f"{name} {value}" for name, value in values.items())

    def _picture(self) -> RenderableType:
        from rich.columns import Columns
        from rich.console import Group
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        load, samples = self._load, self.series.samples
        last = samples[-1]
        numbers = Table.grid(padding=(0, 3))
        values = figures(load, last)
        numbers.add_row(*(Text(name, style="dim") for name in values))
        numbers.add_row(*(Text(value, style="bold") for value in values.values()))
        charts = [
            Group(Text(title, style="bold"), Text("\n".join(lines), style="cyan", no_wrap=True))
            for title, lines in charts_of(load, samples, width=WIDTH // 2)
        ]
        title = f"{load.rate:g} calls/s of {load.tenants} tenants from {load.processes} processes"
        clock = f"{last.elapsed_s:.0f} s of {load.seconds:g} s"
        parts = Group(numbers, Text(), Columns(charts, padding=(0, 4)))
        return Panel(parts, title=title, subtitle=clock, title_align="left", subtitle_align="right")


def figures(load: Load, last: LoadSample) -> dict[str, str]:
    """Return the figures of the last sample by name."""
    level = "-" if last.level is None else f"{last.level:.1f} of {load.capacity:g}"
    values = {
        "admitted/s": f"{last.admitted_per_s:.0f}",
        "refused/s": f"{last.refused_per_s:.0f}",
        "waiting": str(last.waiting),
        "bucket": level,
        "wait ms p50/p95/p99": "/".join(_ms(value) for value in (last.p50_ms, last.p95_ms, last.p99_ms)),
    }
    if load.slots:
        values["slots held"] = "-" if last.slots_held is None else str(last.slots_held)
    return values


def charts_of(load: Load, samples: list[LoadSample], *, width: int = WIDTH) -> list[tuple[str, list[str]]]:
    """Return charts of admitted and refused calls, level and waits over time, each with its title."""
    panels: list[tuple[str, Callable[[LoadSample], float | None], float]] = [
        (f"admitted/s (limit {load.per_s * load.tenants:g})", lambda sample: sample.admitted_per_s, 1.0),
        ("refused/s", lambda sample: sample.refused_per_s, 1.0),
        (f"bucket, mean of tenants (holds {load.capacity:g})", lambda sample: sample.level, load.capacity),
        ("wait, p95, ms", lambda sample: sample.p95_ms, 1.0),
    ]
    return [
        (title, chart([value(sample) for sample in samples], width=width, height=HEIGHT, least_top=top))
        for title, value, top in panels
    ]


def show_report(report: LoadReport, out: Output) -> None:
    """Print the charts and the result."""
    load = report.load
    for title, lines in charts_of(load, report.series.samples):
        out.heading(title)
        out.text("\n".join(lines))
    out.record(report.summary())
    if report.limit_held:
        out.say(verdict(report))


def verdict(report: LoadReport) -> str:
    """Return the result in one sentence."""
    load, check = report.load, report.check
    rate = f"{load.capacity:g} + {load.per_s:g}·W calls of a tenant in any W seconds"
    slots = f", and never more than {load.slots} in flight" if load.slots else ""
    if report.limit_held:
        return f"the limit held: the upstream saw at most {rate}{slots}"
    faults = []
    if not check.rate_held:
        faults.append(f"{check.over_units:.2f} calls too many in some window, beyond {rate}")
    if not check.slots_held:
        faults.append(f"{check.most_in_flight} calls of a tenant in flight on {load.slots} slots")
    return "the limit did not hold: " + "; ".join(faults)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
