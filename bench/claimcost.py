"""The cost of the fair claim: beside a plain one, and by the number of tenants and of jobs."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.claims import KIND, Queue, queue
from bench.report import Row
from fairlead.adapters.postgres.statements import Statement, compile_sql, statement

FIFO = Path(__file__).parent / "limits" / "fifo_claim.sql"
FIFO_INDEX = """
CREATE INDEX IF NOT EXISTS job_ready_idx ON job (queue, priority, run_at, job_id)
    WHERE state = 'available' AND crash_count = 0
"""
DEMANDS = (100, 48)
TENANTS = 1_000
BURST = 10
"""Claims of one side in sequence, as a busy worker makes them."""
BURSTS_A_ROUND = 15
WAKE_EVERY_S = 0.05
BACKEND = "SELECT pg_backend_pid()"
EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "


@dataclass(slots=True)
class Side:
    """One claim, its statement and its measurements."""

    queue: Queue
    claim: Statement
    fair: bool
    took_ms: list[float] = field(default_factory=list)
    """Milliseconds of a claim in each burst."""
    looks: list[tuple[float, float, int]] = field(default_factory=list)
    """For each explained claim: milliseconds in the server, buffers, jobs."""
    cpu_ms: list[float] = field(default_factory=list)
    """CPU milliseconds of the server process for a claim; empty if the system does not report them."""
    _backend: Path | None = None
    _seed: int = 0
    _woken_mono: float = 0.0

    async def begin(self, demand: int) -> None:
        """Make the first claims, which read the catalogs, and discard their figures."""
        async with self.queue.database._checkouts.checkout() as connection:
            self._backend = Path(f"/proc/{(await connection.fetch(BACKEND))[0][0]}/schedstat")
        await self.look(demand)
        await self.timed(demand)
        for measured in (self.looks, self.took_ms, self.cpu_ms):
            measured.clear()

    def _values(self, demand: int) -> dict[str, object]:
        self._seed += 1
        values = {"queues": ["default"], "providers": [], "demand": demand, "lease_seed": self._seed}
        values["session_id"] = self.queue.session_id
        if self.fair:
            wake = time.monotonic() >= self._woken_mono + WAKE_EVERY_S  # as the store does
            self._woken_mono = time.monotonic() if wake else self._woken_mono
            values |= {"kinds": [KIND], "wake": wake}
        return values

    async def timed(self, demand: int, claims: int = 1) -> None:
        """Measure *claims* in sequence, and complete their jobs outside of the measurement."""
        batches = [self._values(demand) for _ in range(claims)]
        cpu_ms, jobs, fetch = self._cpu_ms(), 0, self.queue.database.fetch
        start_mono = time.perf_counter()
        for values in batches:
            jobs += len(await fetch(self.claim, **values))
        self.took_ms.append((time.perf_counter() - start_mono) * 1000 * demand / jobs)
        if cpu_ms is not None:
            self.cpu_ms.append(((self._cpu_ms() or 0) - cpu_ms) * demand / jobs)
        for values in batches:
            await self._done(values)

    def _cpu_ms(self) -> float | None:
        """Return the CPU milliseconds of this side's server process so far; None if unknown."""
        try:
            return int((self._backend or Path()).read_text().split()[0]) / 1e6
        except OSError:
            return None

    async def look(self, demand: int) -> None:
        """Measure a claim by EXPLAIN: time in the server and buffers."""
        values = self._values(demand)
        async with self.queue.database._checkouts.checkout() as connection:
            plan = await connection.fetch(EXPLAIN + self.claim.text, *self.claim.args(**values))
        root = json.loads(plan[0][0])[0]
        buffers = root["Plan"]["Shared Hit Blocks"] + root["Plan"]["Shared Read Blocks"]
        self.looks.append((root["Execution Time"], buffers, await self._done(values)))

    async def _done(self, values: Mapping[str, object]) -> int:
        """Complete the jobs of a claim and return their number."""
        claim_key = {name: values[name] for name in ("session_id", "lease_seed")}
        mine = await self.queue.database.fetch(statement("job_claimed"), **claim_key)
        columns = {"job_ids": [row["job_id"] for row in mine], "lease_ids": [row["lease_id"] for row in mine]}
        await self.queue.database.fetch(statement("job_complete"), **columns, results=None)
        return len(mine)

    def median_per_job(self, column: int) -> float:
        """Return the median of a column of *looks*, per job."""
        return statistics.median(look[column] / look[2] for look in self.looks)


# ---- beside a plain claim --------------------------------------------------------------------------


async def tax(server_url: str, rounds: int, quick: bool) -> list[Row]:
    """Compare the fair claim with the plain one, in turns, each on its own database with the same jobs."""
    backlog = (4_000 if quick else 100_000, TENANTS)
    rows = []
    for demand in DEMANDS:
        async with AsyncExitStack() as stack:
            fair_queue = await stack.enter_async_context(queue(server_url, "fair", backlog, 1))
            fifo_queue = await stack.enter_async_context(queue(server_url, "fifo", backlog, 1))
            async with fifo_queue.database._checkouts.checkout() as connection:
                await connection.execute(FIFO_INDEX)
            fifo_claim = compile_sql("fifo_claim", FIFO.read_text())
            sides = [
                Side(fair_queue, statement("job_claim"), fair=True),
                Side(fifo_queue, fifo_claim, fair=False),
            ]
            await _by_turns(sides, demand, 1 if quick else rounds * BURSTS_A_ROUND)
            rows.append(_tax_row(demand, *sides))
    return rows


async def _by_turns(sides: Sequence[Side], demand: int, bursts: int) -> None:
    for side in sides:
        await side.begin(demand)
    for turn in range(bursts):
        for side in sides if turn % 2 else reversed(sides):
            await side.timed(demand, BURST)
            await side.look(demand)
            await side.queue.done([])


def _tax_row(demand: int, fair: Side, fifo: Side) -> Row:
    return Row(
        bench=f"fairness.tax_{demand}",
        ours=statistics.median(fair.took_ms),
        unit="ms",
        limit=statistics.median(fifo.took_ms),
        goal={"ratio_limit": 1.25},
        at_most=True,
        n=len(fair.took_ms),
        more={
            "p10_ms": [round(_p10(side.took_ms), 3) for side in (fair, fifo)],
            "p10_ratio": round(_p10(fair.took_ms) / _p10(fifo.took_ms), 3),
            "server_cpu_ms": [
                round(statistics.median(side.cpu_ms), 3) for side in (fair, fifo) if side.cpu_ms
            ],
            "buffers_per_job": [round(side.median_per_job(1), 1) for side in (fair, fifo)],
            "tenants": TENANTS,
        },
    )


def _p10(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 10]


# ---- by size ---------------------------------------------------------------------------------------


async def flat(server_url: str, quick: bool) -> list[Row]:
    """Measure buffers by tenants at a fixed number of jobs, and by jobs at a fixed number of tenants."""
    many = 20_000 if quick else 200_000
    by_tenants = {
        f"{tenants}": (many, tenants) for tenants in ((10, 200, 2_000) if quick else (10, 1_000, 20_000))
    }
    sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    by_jobs = {f"{jobs}": (jobs, 100) for jobs in sizes}
    return [
        await _flat(server_url, "fairness.flat_tenants", by_tenants),
        await _flat(server_url, "fairness.flat_jobs", by_jobs),
    ]


async def _flat(server_url: str, bench: str, backlogs: Mapping[str, tuple[int, int]]) -> Row:
    """Compare the most expensive size with the cheapest, for the worse of both demands."""
    buffers: dict[str, list[float]] = {}
    server_ms: dict[str, list[float]] = {}
    for name, backlog in backlogs.items():
        async with queue(server_url, "flat", backlog) as flat_queue:
            for demand in DEMANDS:
                side = Side(flat_queue, statement("job_claim"), fair=True)
                for _ in range(4):
                    await side.look(demand)
                del side.looks[0]  # it read the catalogs
                buffers.setdefault(name, []).append(round(side.median_per_job(1), 2))
                server_ms.setdefault(name, []).append(round(side.median_per_job(0) * demand, 2))
    worst = max(zip(*buffers.values(), strict=True), key=lambda values: max(values) / min(values))
    return Row(
        bench=bench,
        ours=max(worst),
        unit="buffers/job",
        limit=min(worst),
        goal={"ratio_limit": 1.5},
        at_most=True,
        n=3,
        more={"demands": list(DEMANDS), "buffers_per_job": buffers, "claim_ms": server_ms},
    )
