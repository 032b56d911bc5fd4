"""How long a slot stays idle between two holders: 100 calls of 0.1 s through one slot, over four processes.

Every call stands in line from the start. Judged by the event log of the pool alone, on the server's clock: a
call ends with its ``release``; the slot is handed on in the same step, and the next call has begun when its
process claimed what it was handed (``claim``). In between lie the hint, the loop of the other process, and
one round trip; for so long nobody calls.

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
from fairlead.engine.limits.admitter import AdmissionRequest
from fairlead.policy.limits.key import KeyKind, Keyspace
from fairlead.policy.limits.limit import MICRO, Domain, Plan, PoolLimit

PROCESSES = 4
HOLD_S = 0.1
POOL = PoolLimit("one", 1)
PLAN = Plan(Domain(("tenant", "bench")), pool=POOL)


async def run(*, rounds: int, quick: bool) -> list[Row]:
    """Both rows: medians of *rounds* runs."""
    calls = 20 if quick else 100
    with servers() as endpoints:
        url = endpoints.redis_url
        found = [await _round(url, f"handover{number}", calls) for number in range(1 if quick else rounds)]
    idle = [sum(one["gaps_s"]) / one["held_s"] for one in found]
    gaps = [gap for one in found for gap in one["gaps_s"]]
    p50, p95 = (statistics.quantiles(gaps, n=100)[rank - 1] * 1e3 for rank in (50, 95))
    sizes = {"calls": calls, "hold_s": HOLD_S, "processes": PROCESSES}
    return [
        Row(
            "handover.idle", statistics.median(idle) * 100, "% of holds", len(found),
            goal={"ours": 2.0}, at_most=True,
            more=sizes | {"runs": [round(share * 100, 3) for share in idle]},
        ),
        Row(
            "handover.p95", p95, "ms", len(gaps),
            goal={"ours": 5.0}, at_most=True, more={"p50": round(p50, 3), "max": round(max(gaps) * 1e3, 3)},
        ),
    ]  # fmt: skip


async def _round(url: str, prefix: str, calls: int) -> dict[str, Any]:
    each = calls // PROCESSES
    command = (sys.executable, "-m", "bench.handover", url, prefix, str(each))
    children = [
        await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        for _ in range(PROCESSES)
    ]
    told = await asyncio.gather(*(child.communicate() for child in children))
    if any(child.returncode for child in children):
        raise RuntimeError(f"a process failed: {[out.decode() for out, _ in told]}")
    async with Redis.from_url(url) as client:
        events = await client.xrange(Keyspace(prefix).key(KeyKind.POOL, PLAN.domain, POOL.key) + ":e")
    return judged([(fields[b"k"].decode(), int(fields[b"t"]) / MICRO) for _, fields in events], calls)


def judged(events: Sequence[tuple[str, float]], calls: int) -> dict[str, Any]:
    """The gaps between calls, and for how long calls ran, by the (kind, second) of each event.

    A call begins with the grant of a free slot, or with the claim of one that was handed on.
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
    """Make *calls* calls, all of which stand in line at once."""
    clock = SystemClock()
    house = GateCore(
        Secret(url), process=str(os.getpid()), clock=clock, draw=draw, ids=SystemIds(),
        emit=lambda event: None, settings=GateSettings(prefix=prefix, new=True, events=10_000),
    )  # fmt: skip

    async def call() -> None:
        async with house.admissions.enter(AdmissionRequest(PLAN, "bench", "none", wait_s=120)):
            await asyncio.sleep(HOLD_S)

    await house.open()
    services = [asyncio.create_task(service.run()) for service in house.services()]
    await asyncio.gather(*(call() for _ in range(calls)))
    for service in services:
        service.cancel()
    await asyncio.wait(services)
    await house.close()
    print(json.dumps({"calls": calls}))


if __name__ == "__main__":
    asyncio.run(_child(sys.argv[1], sys.argv[2], int(sys.argv[3])))
