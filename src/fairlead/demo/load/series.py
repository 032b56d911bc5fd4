"""The figures of a run over time, and what they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.demo.load.load_plan import Load
from fairlead.demo.load.upstream import LimitCheck
from fairlead.engine.ports import GateView


def percentile(values: Iterable[float], share: float) -> float | None:
    """The smallest of *values* that at least *share* of them do not exceed; None of none.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, min(len(ordered), -int(-share * len(ordered) // 1)) - 1)]


@dataclass(frozen=True, slots=True)
class LoadSample:
    """One moment. *level* and *held* are of the tenants looked at: the mean bucket, the slots of them all.

    Waits are of the calls admitted since the sample before; None where none was.
    """

    at_s: float
    offered_per_s: float
    admitted_per_s: float
    refused_per_s: float
    waiting: int
    in_flight: int
    level: float | None
    held: int | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


@dataclass
class LoadSeries:
    """Gathers what the processes tell, and makes a sample of it now and then."""

    load: Load
    samples: list[LoadSample] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    waits_ms: list[float] = field(default_factory=list)
    turn_s: float = 0.0
    _recent: Counter[str] = field(default_factory=Counter)
    _recent_ms: list[float] = field(default_factory=list)
    _waiting: dict[int, int] = field(default_factory=dict)
    _at_s: float = 0.0

    def hear(self, rank: int, told: Mapping[str, Any]) -> None:
        """The figures of one process since it told its last."""
        self._recent.update(told["counts"])
        self.counts.update(told["counts"])
        self.refused.update(told["refused"])
        self._recent_ms += told["waits_ms"]
        self.waits_ms += told["waits_ms"]
        self.turn_s = max(self.turn_s, told["turn_s"])
        self._waiting[rank] = told["waiting"]

    def sample(self, at_s: float, in_flight: int, views: Sequence[GateView]) -> None:
        """How it stands *at_s* seconds after the beginning; *views* empty: the gate was away."""
        took_s = max(at_s - self._at_s, 1e-3)
        recent, waits = self._recent, self._recent_ms
        levels = [view.buckets[0].level for view in views]
        self.samples.append(
            LoadSample(
                at_s=round(at_s, 3),
                offered_per_s=round(recent["offered"] / took_s, 2),
                admitted_per_s=round(recent["admitted"] / took_s, 2),
                refused_per_s=round(recent["refused"] / took_s, 2),
                waiting=sum(self._waiting.values()),
                in_flight=in_flight,
                level=round(max(0.0, sum(levels) / len(levels)), 3) if levels else None,
                held=sum(len(view.holders) for view in views) if views and self.load.slots else None,
                p50_ms=percentile(waits, 0.50),
                p95_ms=percentile(waits, 0.95),
                p99_ms=percentile(waits, 0.99),
            )
        )
        self._at_s, self._recent, self._recent_ms = at_s, Counter(), []


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A run that is over."""

    load: Load
    series: LoadSeries
    judgement: LimitCheck
    server: str

    @property
    def held(self) -> bool:
        """Whether the limits held, and none of the calls met an error."""
        return self.judgement.rate_held and self.judgement.slots_held

    def summary(self) -> dict[str, Any]:
        """The figures."""
        series, judged, counts = self.series, self.judgement, self.series.counts
        return {
            "limit_held": self.held,
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
                "arrived": judged.arrived,
                "over_units": round(judged.over_units, 3),
                "allowed_units": round(judged.allowed_units, 3),
                "most_in_flight": judged.most_in_flight,
                "slots": judged.slots or None,
            },
            "events": dict(series.events),
            "server": self.server,
        }

    def as_json(self) -> dict[str, Any]:
        """Everything."""
        load = {name: getattr(self.load, name) for name in self.load.__dataclass_fields__}
        names = LoadSample.__dataclass_fields__
        samples = [{name: getattr(sample, name) for name in names} for sample in self.series.samples]
        return {"load": load, "summary": self.summary(), "series": samples}
