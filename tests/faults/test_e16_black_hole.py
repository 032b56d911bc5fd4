"""E16: the database falls silent: nothing is refused, nothing is reset, nothing comes any more.

In a black hole not even the other end's system acknowledges what is sent; behind a stalled peer it does. In
both every wait ends: for a connection, for an answer, and on a connection that only listens. Once the road is
open again, work goes on.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.postgres.listen import _PROBE_EVERY_S
from tests.faults.support.child import Asked, Child
from tests.faults.support.load import Load, all_begin
from tests.faults.support.report import FULL, Figures, quantiles, sized
from tests.faults.support.stage import FAMILY, Stage
from tests.faults.support.tcpwire import TcpWire, postgres_over_tcp
from tests.support.standstill import ran_s

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the black hole is a socket filter of Linux"),
]

SCALE = sized(0.1, 1.0)
HANG_BOUND_S = sized(4.0, 30.0)  # the noise of a busy machine is no tenth
GRACE_S = 60.0 * SCALE
EXIT_BOUND_S = sized(7.0, 30.0)  # what a supervisor waits by default before it kills
RESUME_BOUND_S = 5.0
ASKS = 12  # more than there are connections: some wait for one
LOOK_S = 0.01

WAITS = ("connect_timeout_s", "acquire_timeout_s", "statement_timeout_s", "command_timeout_s")
QUICK: dict[str, Any] = {
    "database": {name: getattr(DatabaseSettings(dsn=""), name) * SCALE for name in WAITS},
    "within_s": 5.0 * SCALE,
    "probe_s": _PROBE_EVERY_S * SCALE,
    "tcp": {"user_timeout_ms": 2000, "idle_s": 1, "every_s": 1},
}
"""The numbers of the product, a tenth of each; the system counts whole seconds."""
NUMBERS: dict[str, Any] = {} if FULL else QUICK
FOR_EVER: dict[str, Any] = {"database": dict.fromkeys(WAITS, 3600.0), "probe_s": 3600.0}


@dataclass
class _Silence:
    """What is asked of *child* while its database says nothing, and for how long each answer was awaited."""

    child: Child
    wire: TcpWire
    asked: list[asyncio.Task[float]]
    since_s: float
    standing: set[str]

    async def waits_s(self, most_s: float) -> list[float]:
        """Of those that end within *most_s*."""
        ended, _ = await asyncio.wait(self.asked, timeout=most_s)
        return [task.result() for task in ended]

    async def let_go_s(self, most_s: float) -> float | None:
        """When the last connection of before the silence was given up, if it was within *most_s*."""
        while self.standing & self.wire.standing():
            if time.monotonic() > self.since_s + most_s:
                return None
            await asyncio.sleep(LOOK_S)
        return ran_s(self.since_s)

    def judge(self, figures: Figures, waits_s: list[float], let_go_s: float | None) -> None:
        """Whatever waited has ended in time."""
        figures.note(n=len(self.asked), wait_s=quantiles(waits_s), let_go_s=let_go_s and round(let_go_s, 3))
        figures.zero(hanging=len(self.asked) - len(waits_s), standing=int(let_go_s is None))
        longest_s = max([*waits_s, let_go_s or 0.0])
        figures.holds(longest_s <= HANG_BOUND_S, f"longest hang {longest_s:.1f} s")


async def _timed_ask(child: Child, command: str, **how: Any) -> float:
    """Seconds until the answer, whatever it is."""
    began_s = time.monotonic()
    with suppress(Asked):
        await child.ask(command, **how)
    return ran_s(began_s)


async def _fall_silent(stage: Stage, child: Child, wire: TcpWire, how: str) -> _Silence:
    tenant = f"acme-{child.pid}"
    (connection,) = await stage.connect(child, FAMILY, [tenant])
    standing = wire.standing()
    wire.black_hole() if how == "black hole" else wire.stall()
    asks: list[tuple[str, dict[str, Any]]] = [
        ("token", {"tenant": tenant, "provider": FAMILY}),
        ("refresh", {"connection": connection, "newer_than": 1}),
    ]
    job = {"kind": "fault.work", "tenant_id": tenant, "queue": "none", "args": {"n": -1}}
    asks += [("enqueue", {"jobs": [job]})] * ASKS
    tasks = [asyncio.create_task(_timed_ask(child, command, **more)) for command, more in asks]
    return _Silence(child, wire, tasks, time.monotonic(), standing)


async def _silence(stage: Stage, sink: Path, how: str) -> Figures:
    """Two processes on a road of their own, one of which is told to end in the silence."""
    figures, queue = Figures("E16"), how.replace(" ", "-")
    numbers = {"lease_s": 30.0 * SCALE, "poll_s": 0.1, "shutdown_grace_s": GRACE_S, "queues": [queue]}
    async with postgres_over_tcp(stage.database.settings.dsn) as (wire, url):
        child, leaving = await stage.all_born(2, url=url, sink=str(sink), worker=numbers, **NUMBERS)
        silence = await _fall_silent(stage, child, wire, how)
        waits_s, let_go_s, exit_s = await asyncio.gather(
            silence.waits_s(2 * HANG_BOUND_S), silence.let_go_s(2 * HANG_BOUND_S), _timed_ask(leaving, "stop")
        )
        wire.heal()
        back_s = time.monotonic()
        await Load(child, figures, queue=queue).ask(1)
        resumed_s = (await all_begin(sink, [child], back_s))[child.pid] - back_s
        await child.stop()
    figures.note(what=how, exit_s=round(exit_s, 3), resume_s=round(resumed_s, 3))
    silence.judge(figures, waits_s, let_go_s)
    figures.holds(exit_s <= EXIT_BOUND_S, f"gone after {exit_s:.1f} s")
    figures.holds(resumed_s <= RESUME_BOUND_S, f"resumed after {resumed_s:.1f} s")
    return figures


async def test_E16_black_hole(stage: Stage, tmp_path: Path) -> None:
    faults = ("black hole", "stall")
    both = await asyncio.gather(*(_silence(stage, tmp_path / f"sink-{how}.ndjson", how) for how in faults))
    for figures in both:
        figures.conclude()


async def test_E16_ablation_waits_for_ever(stage: Stage) -> None:
    figures = Figures("E16", ablation="no timeouts, no guard of sockets", sees="hanging")
    async with postgres_over_tcp(stage.database.settings.dsn) as (wire, url):
        child = await stage.born(url=url, unsafe=["no_guard"], **FOR_EVER)
        silence = await _fall_silent(stage, child, wire, "black hole")
        silence.judge(figures, await silence.waits_s(HANG_BOUND_S), await silence.let_go_s(HANG_BOUND_S))
        await child.kill()
        await asyncio.gather(*silence.asked, return_exceptions=True)
    for sign in ("hanging", "standing"):
        assert any(claim.startswith(sign) for claim in figures.broken), f"{sign} was not seen: {figures.line}"
    figures.conclude()
