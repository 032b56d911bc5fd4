"""The picture of a run: four panels over one time, as PNG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.cli.simulate.series import Report, Sample
from fairlead.errors import DependencyUnavailable, InputInvalid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Value = Callable[[Sample], float | None]

GREEN, RED, BLUE, GREY, ORANGE = "#2a9d8f", "#d1495b", "#30638e", "#8d99ae", "#edae49"


def check_plots() -> None:
    """DependencyUnavailable where the library for pictures is missing; to be asked before a run."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise DependencyUnavailable(
            "a PNG needs matplotlib, which is not installed",
            hint="pip install 'fairlead[plot]'; without --png the terminal shows the same charts",
        ) from None


def save(report: Report, file: Path) -> None:
    """Write *file*; InputInvalid where that is not possible."""
    from matplotlib.figure import Figure

    load, judged = report.load, report.judgement
    figure = Figure(figsize=(12, 7.5), dpi=110, layout="constrained")
    ((admitted, level), (flight, waits)) = figure.subplots(2, 2, sharex=True)
    word = "held" if report.held else "did NOT hold"
    figure.suptitle(
        f"{load.rate:g} calls/s · {load.tenants} tenants · {load.processes} processes · {report.server}\n"
        f"the limit {word}: {judged.over_units:.2f} calls over in the worst window "
        f"({judged.allowed_units:.2f} by the time on the way)",
        fontsize=12,
    )
    _lines(
        admitted,
        report,
        {
            "admitted/s": (lambda one: one.admitted_per_s, GREEN),
            "refused/s": (lambda one: one.refused_per_s, RED),
        },
    )
    _bound(admitted, load.per_s * load.tenants, f"limit {load.per_s * load.tenants:g}/s")
    _titled(admitted, "Calls", "per second")
    _lines(level, report, {"level, mean of tenants": (lambda one: one.level, BLUE)})
    _bound(level, load.capacity, f"capacity {load.capacity:g}")
    _titled(level, "Bucket", "calls left")
    _lines(
        flight,
        report,
        {
            "in flight at the upstream": (lambda one: one.in_flight, BLUE),
            "waiting to be let in": (lambda one: one.waiting, ORANGE),
        },
    )
    if load.slots:
        _bound(flight, load.slots * load.tenants, f"slots {load.slots * load.tenants}")
    _titled(flight, "In flight and waiting", "calls")
    _lines(
        waits,
        report,
        {
            "p50": (lambda one: one.p50_ms, GREEN),
            "p95": (lambda one: one.p95_ms, ORANGE),
            "p99": (lambda one: one.p99_ms, RED),
        },
    )
    _titled(waits, "Waits of those who were admitted", "ms")
    for axes in (flight, waits):
        axes.set_xlabel("seconds")
    try:
        figure.savefig(file, format="png")
    except OSError as error:
        raise InputInvalid(
            f"{file} cannot be written: {error.strerror}", hint="name a file that can"
        ) from None


def _lines(axes: Axes, report: Report, values: dict[str, tuple[Value, str]]) -> None:
    samples = report.series.samples
    times = [sample.at_s for sample in samples]
    for label, (value, color) in values.items():
        known = [value(sample) for sample in samples]
        axes.plot(
            times, [float("nan") if one is None else one for one in known], label=label, color=color, lw=1.8
        )


def _bound(axes: Axes, value: float, label: str) -> None:
    axes.axhline(value, color=GREY, linestyle="--", linewidth=1.2, label=label)


def _titled(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.1)
    axes.grid(visible=True, alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="best", fontsize=8, framealpha=0.85)
