"""The figures of a run over time, and their summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.demo.load.load_plan import Load
from fairlead.demo.load.upstream import LimitCheck
from fairlead.engine.ports import GateView


def percentile(values: Iterable[float], share: float) -> float | None:
    """Return the smallest of *values* that at least *share* of them do not exceed; None without values.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, min(len(ordered), -int(-share * len(ordered) // 1)) - 1)]


@dataclass(frozen=True, slots=True)
class LoadSample:
    """The figures of one instant.

    *level* is the mean bucket of the sampled tenants, *slots_held* the sum of their slots. Waits are of the calls
    admitted since the last sample; None if there were none.
    """

    elapsed_s: float
    offered_per_s: float
    admitted_per_s: float
    refused_per_s: float
    waiting: int
    in_flight: int
    level: float | None
    slots_held: int | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


@dataclass
class LoadSeries:
    """The figures from all processes, and the samples made of them."""

    load: Load
    samples: list[LoadSample] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    waits_ms: list[float] = field(default_factory=list)
    max_admission_s: float = 0.0
    _recent: Counter[str] = field(default_factory=Counter)
    _recent_ms: list[float] = field(default_factory=list)
    _waiting: dict[int, int] = field(default_factory=dict)
    _sampled_s: float = 0.0

    def add(self, rank: int, figures: Mapping[str, Any]) -> None:
        """Add the figures of one process since its last ones."""
        self._recent.update(figures["counts"])
        self.counts.update(figures["counts"])
        self.refused.update(figures["refused"])
        self._recent_ms += figures["waits_ms"]
        self.waits_ms += figures["waits_ms"]
        self.max_admission_s = max(self.max_admission_s, figures["max_admission_s"])
        self._waiting[rank] = figures["waiting"]

    def sample(self, elapsed_s: float, in_flight: int, views: Sequence[GateView]) -> None:
        """Add a sample *elapsed_s* seconds after the start; *views* is empty if the gate was unavailable."""
        took_s = max(elapsed_s - self._sampled_s, 1e-3)
        recent, waits = self._recent, self._recent_ms
        levels = [view.buckets[0].level for view in views]
        self.samples.append(
            LoadSample(
                elapsed_s=round(elapsed_s, 3),
                offered_per_s=round(recent["offered"] / took_s, 2),
                admitted_per_s=round(recent["admitted"] / took_s, 2),
                refused_per_s=round(recent["refused"] / took_s, 2),
                waiting=sum(self._waiting.values()),
                in_flight=in_flight,
                level=round(max(0.0, sum(levels) / len(levels)), 3) if levels else None,
                slots_held=sum(len(view.holders) for view in views) if views and self.load.slots else None,
                p50_ms=percentile(waits, 0.50),
                p95_ms=percentile(waits, 0.95),
                p99_ms=percentile(waits, 0.99),
            )
        )
        self._sampled_s, self._recent, self._recent_ms = elapsed_s, Counter(), []


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of a run."""

    load: Load
    series: LoadSeries
    check: LimitCheck
    server: str

    @property
    def limit_held(self) -> bool:
        """Whether the limits held."""
        return self.check.rate_held and self.check.slots_held

    def summary(self) -> dict[str, Any]:
        """Return the figures."""
        series, check, counts = self.series, self.check, self.series.counts
        return {
            "limit_held": self.limit_held,
            "offered": counts["offered"],
            "admitted": counts["admitted"],
            "refused": counts["refused"],
            "refused_by": dict(series.refused),
            "not_begun": counts["not_begun"],
            "unavailable": counts["unavailable"],
            "slots_lost": counts["lost"],
            "admitted_without_redis": counts["local"],
            "wait_ms": {
                name: percentile(series.waits_ms, share)
                for name, share in (("p50", 0.50), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
            },
            "upstream": {
                "arrived": check.arrived,
                "over_units": round(check.over_units, 3),
                "allowed_units": round(check.allowed_units, 3),
                "most_in_flight": check.most_in_flight,
                "slots": check.slots or None,
            },
            "events": dict(series.events),
            "server": self.server,
        }

    def as_json(self) -> dict[str, Any]:
        """Return the load, the summary and all samples."""
        load = {name: getattr(self.load, name) for name in self.load.__dataclass_fields__}
        names = LoadSample.__dataclass_fields__
        samples = [{name: getattr(sample, name) for name in names} for sample in self.series.samples]
        return {"load": load, "summary": self.summary(), "series": samples}
