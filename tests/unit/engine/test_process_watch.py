"""The watch over a process's own faults."""

from __future__ import annotations

import asyncio

from fairlead.engine.base.process_watch import ProcessWatch
from fairlead.events import Event, ProcessRecovered, ProcessUnhealthy
from tests.support.engine import Recorder, half
from tests.support.process import Fleet, Gate


class PatientClock:
    """Time goes by as it is slept away."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, delay_s: float) -> None:
        self.now_s += delay_s
        await asyncio.sleep(0)


async def test_a_place_that_cannot_be_tried_does_not_end_the_checks() -> None:
    events: list[Event] = []
    looks = 0

    async def reaches(_url: str) -> bool:
        nonlocal looks
        looks += 1
        if looks < 6:
            raise ValueError("server_hostname cannot start with a leading dot")
        return True

    watch = ProcessWatch(reaches, lambda: True, clock=PatientClock(), draw=lambda: 0.5, emit=events.append)
    for url in ("https://one.example", "https://two.example"):
        watch.failed(url, "resolver")
    assert not watch.may_claim()
    async with asyncio.timeout(10):
        while not watch.may_claim():
            await asyncio.sleep(0)
    assert [type(event) for event in events] == [ProcessUnhealthy, ProcessRecovered]
    await watch.close()


async def test_sick_process_claims_no_job_until_a_check_passes() -> None:
    fleet, gate, emit = Fleet(), Gate(), Recorder()
    is_well = False

    async def reaches(_url: str) -> bool:
        return is_well

    watch = ProcessWatch(reaches, lambda: True, clock=fleet.clock, draw=half, emit=emit)
    process = await fleet.start(gate.handler, watch=watch)
    for url in ("https://a", "https://b"):
        watch.failed(url, "resolver")
    await fleet.enqueue()
    await fleet.advance(30)
    assert (process.operations["claim"], gate.started) == (0, [])
    is_well = True
    await fleet.advance(11)
    assert gate.running == 1
    assert [type(event) for event in emit.events] == [ProcessUnhealthy, ProcessRecovered]
    await watch.close()
    await fleet.close()
