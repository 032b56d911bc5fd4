"""How long a slot stays idle between two holders: 100 calls of 0.1 s through one slot, over four processes.

All calls are queued from the start. The figures come from the event log of the pool, on the server's clock. A
call ends with its ``release``, which hands the slot to the next call. That call starts when its process claims
the slot (``claim``). Between them are the hint, the event loop of the other process, and one round trip.

    handover.idle   time between calls, as a share of the time of the calls
    handover.p95    of one hand-over
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis

from bench.databases import servers
from bench.report import Row
from fairlead._core.secret import Secret
from fairlead.adapters.local.system import SystemClock, SystemIds, draw
from fairlead.assembly.gate import GateCore, GateSettings
from fairlead.engine.limits.admission import AdmissionRequest
from fairlead.policy.limits.key import KeyKind, Keyspace
from fairlead.policy.limits.limit import MICRO, Domain, Plan, PoolLimit

PROCESSES = 4
HOLD_S = 0.1
POOL = PoolLimit("one", 1)
PLAN = Plan(Domain(("tenant", "bench")), pool=POOL)


async def run(*, rounds: int, quick: bool) -> list[Row]:
    """Return both rows: medians of *rounds* runs."""
    calls = 20 if quick else 100
    with servers() as endpoints:
        url = endpoints.redis_url
        results = [await _round(url, f"handover{number}", calls) for number in range(1 if quick else rounds)]
    idle = [sum(result["gaps_s"]) / result["held_s"] for result in results]
    gaps = [gap for result in results for gap in result["gaps_s"]]
    p50, p95 = (statistics.quantiles(gaps, n=100)[rank - 1] * 1e3 for rank in (50, 95))
    sizes = {"calls": calls, "hold_s": HOLD_S, "processes": PROCESSES}
    return [
        Row(
            "handover.idle", statistics.median(idle) * 100, "% of holds", len(results),
            goal={"ours": 2.0}, at_most=True,
            more=sizes | {"runs": [round(share * 100, 3) for share in idle]},
        ),
        Row(
            "handover.p95", p95, "ms", len(gaps),
            goal={"ours": 5.0}, at_most=True, more={"p50": round(p50, 3), "max": round(max(gaps) * 1e3, 3)},
        ),
    ]  # fmt: skip


async def _round(url: str, prefix: str, calls: int) -> dict[str, Any]:
    calls_per_process = calls // PROCESSES
    command = (sys.executable, "-m", "bench.handover", url, prefix, str(calls_per_process))
    children = [
        await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        for _ in range(PROCESSES)
    ]
    outputs = await asyncio.gather(*(child.communicate() for child in children))
    if any(child.returncode for child in children):
        raise RuntimeError(f"a process failed: {[out.decode() for out, _ in outputs]}")
    async with Redis.from_url(url) as client:
        events = await client.xrange(Keyspace(prefix).key(KeyKind.POOL, PLAN.domain, POOL.key) + ":e")
    return judged([(fields[b"k"].decode(), int(fields[b"t"]) / MICRO) for _, fields in events], calls)


def judged(events: Sequence[tuple[str, float]], calls: int) -> dict[str, Any]:
    """Return the gaps between calls and the time of all calls, from (kind, second) of each event.

    A call starts with the grant of a free slot, or with the claim of a slot that was handed over.
    """
    begins = [at for kind, at in events if kind in {"grant", "claim"}]
    ends = [at for kind, at in events if kind == "release"]
    if (len(begins), len(ends)) != (calls, calls):
        raise RuntimeError(f"{len(begins)} calls began and {len(ends)} ended, of {calls}")
    gaps = [begin - end for end, begin in zip(ends, begins[1:], strict=False)]
    if min(gaps) < 0:
        raise RuntimeError("two calls at once")
    return {"gaps_s": gaps, "held_s": sum(end - begin for begin, end in zip(begins, ends, strict=True))}


async def _child(url: str, prefix: str, calls: int) -> None:
    """Make *calls* calls, all of which are queued at once."""
    clock = SystemClock()
    gate = GateCore(
        Secret(url), process=str(os.getpid()), clock=clock, draw=draw, ids=SystemIds(),
        emit=lambda event: None, settings=GateSettings(prefix=prefix, new=True, events=10_000),
    )  # fmt: skip

    async def call() -> None:
        async with gate.admitter.enter(AdmissionRequest(PLAN, "bench", "none", wait_s=120)):
            await asyncio.sleep(HOLD_S)

    await gate.open()
    services = [asyncio.create_task(service.run()) for service in gate.services()]
    await asyncio.gather(*(call() for _ in range(calls)))
    for service in services:
        service.cancel()
    await asyncio.wait(services)
    await gate.close()
    print(json.dumps({"calls": calls}))


if __name__ == "__main__":
    asyncio.run(_child(sys.argv[1], sys.argv[2], int(sys.argv[3])))
