"""The next claim is under way while the jobs of the last one run."""

from __future__ import annotations

import asyncio

from fairlead.engine.base.timing import LEAVE_S
from tests.support.engine import new_job
from tests.support.process import Fleet, Gate, Process


def _hold_second_claim(process: Process) -> asyncio.Event:
    """The answer of the second claim comes once the event is set."""
    answered, claims = asyncio.Event(), 0

    async def after_operation(operation: str) -> None:
        nonlocal claims
        claims += operation == "claim"
        if operation == "claim" and claims == 2:
            await answered.wait()

    process.link.on_answer = after_operation
    return answered


async def test_jobs_run_while_the_next_claim_is_under_way(fleet: Fleet) -> None:
    gate = Gate()
    process = fleet.new(gate.handler)
    answered = _hold_second_claim(process)
    await fleet.enqueue(*(new_job() for _ in range(10)))
    await gate.wait_running(5)  # half of the places for each
    assert await fleet.jobs.counts() == {"running": 10}
    answered.set()
    await gate.wait_running(10)


async def test_a_claim_under_way_at_the_stop_is_served(fleet: Fleet) -> None:
    gate = Gate()
    process = fleet.new(gate.handler)
    answered = _hold_second_claim(process)
    await fleet.enqueue(*(new_job() for _ in range(10)))
    await gate.wait_running(5)
    process.stop()
    gate.open.set()
    answered.set()
    await process.stopped()
    assert await fleet.jobs.counts() == {"completed": 10}


async def test_a_claim_without_an_answer_does_not_hold_up_the_end(fleet: Fleet) -> None:
    """What it took is free with the session (E16)."""
    gate = Gate()
    process = fleet.new(gate.handler)
    _hold_second_claim(process)
    await fleet.enqueue(*(new_job() for _ in range(10)))
    await gate.wait_running(5)
    process.stop()
    gate.open.set()
    await fleet.advance(LEAVE_S - 0.1)
    assert not process.task.done()
    await fleet.advance(0.2)
    await process.stopped()
    assert await fleet.jobs.counts() == {"completed": 5, "available": 5}
