"""What processes and the database hold over time, and how much more of it they would hold in an hour."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.faults.support.stage import Stage

WARM = 0.4
"""The share of the time that is no measure: caches fill up, memory is taken that is used again."""

HELD_RESOURCES = (
    "SELECT (SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database()"
    "  AND application_name = 'fairlead') AS connections,"
    " (SELECT coalesce(sum(n_dead_tup), 0)::int FROM pg_stat_user_tables) AS dead_tuples,"
    " (SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::int FROM pg_stat_user_tables) AS changed"
)


@dataclass
class Growth:
    """Looks at one process, where there is /proc, and one database every *every_s* seconds."""

    stage: Stage
    pid: int
    every_s: float
    samples: list[dict[str, Any]] = field(default_factory=list)

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            (held_row,) = await self.stage.rows(HELD_RESOURCES)
            self.samples.append({"s": time.monotonic(), **held_row, **_of_process(self.pid)})
            await asyncio.sleep(self.every_s)

    def measured(self, name: str) -> list[tuple[float, float]]:
        """(time, value) after the warm-up."""
        points = [(sample["s"], float(sample[name])) for sample in self.samples if name in sample]
        return points[round(len(points) * WARM) :]

    def told(self) -> dict[str, dict[str, float]]:
        """Of each thing the slope an hour, the first measure and the most."""
        growth_by_name = {}
        for name in ("rss_mib", "descriptors", "connections", "dead_tuples"):
            if points := self.measured(name):
                values = [value for _, value in points]
                slope = slope_an_hour(points)
                growth_by_name[name] = {"an_hour": round(slope, 1), "first": values[0], "most": max(values)}
        return growth_by_name

    def never_seen(self, names: Sequence[str]) -> list[str]:
        """Those of *names* that hardly a look could measure: of these nothing is known."""
        return [
            name for name in names if sum(name in sample for sample in self.samples) <= len(self.samples) / 2
        ]

    def changes_a_s(self) -> float:
        """Rows that were changed or deleted, in a second: each leaves a dead one."""
        first, last = self.samples[0], self.samples[-1]
        return float((last["changed"] - first["changed"]) / max(1e-3, last["s"] - first["s"]))


def _of_process(pid: int) -> dict[str, float]:
    folder = Path(f"/proc/{pid}")
    try:
        pages = int((folder / "statm").read_text().split()[1])
        return {
            "rss_mib": round(pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20), 1),
            "descriptors": len(list((folder / "fd").iterdir())),
        }
    except FileNotFoundError:
        return {}


def slope_an_hour(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between far points (Theil and Sen): a few peaks do not tilt it."""
    half = len(points) // 2
    pairs = zip(points[: len(points) - half], points[half:], strict=False)
    slopes = [
        (later - value) / (later_s - at_s) for (at_s, value), (later_s, later) in pairs if later_s > at_s
    ]
    return median(slopes) * 3600 if slopes else 0.0
