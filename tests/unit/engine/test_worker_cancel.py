"""Runs that end before they are done: cut by a drain, cancelled by a person, beyond their timeout (R55)."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.events import JobFinished, JobsHandedBack, TimeoutIgnored
from fairlead.policy.failures.backoff import Jitter
from fairlead.policy.failures.retry import RetryPolicy
from tests.support.process import LEASE_S, Fleet, Gate


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_cancelled_run_is_ended_with_the_heartbeat_and_keeps_its_place(
    fleet: Fleet, deaf: bool
) -> None:
    gate = Gate(deaf=deaf)
    (job,) = await fleet.enqueue()
    process = await fleet.start(gate.handler)
    await gate.wait_running(1)
    assert await fleet.jobs.cancel(job.job_id, "operator") == "running"
    await fleet.advance(LEASE_S / 3)
    assert len(gate.cancelled) == 1
    if deaf:  # and it completes what it began
        await fleet.advance(LEASE_S)
        assert (len(gate.cancelled), (await fleet.view(job)).state) == (1, "running")
        gate.open.set()
    (finished,) = [await process.emit.wait_for(JobFinished)]
    await fleet.settle()
    view = await fleet.view(job)
    assert view.state == finished.outcome == ("completed" if deaf else "cancelled")
    assert deaf or view.result == {"cancelled": "operator"}
    assert process.emit.of(JobsHandedBack) == []


async def test_a_handler_that_ignores_its_timeout_is_reported(fleet: Fleet) -> None:
    gate = Gate(deaf=True, timeout_s=20)
    (job,) = await fleet.enqueue()
    process = await fleet.start(gate.handler)
    await gate.wait_running(1)
    await fleet.advance(24)
    assert process.emit.of(TimeoutIgnored) == []
    await fleet.advance(1)
    about = (job.job_id, "acme", None, "work")
    assert process.emit.of(TimeoutIgnored) == [TimeoutIgnored(*about, timeout_s=20, over_s=5)]
    await fleet.advance(40)
    assert [event.over_s for event in process.emit.of(TimeoutIgnored)] == [5, 10, 20, 40]
    assert (gate.most, (await fleet.view(job)).state) == (1, "running")
    gate.open.set()
    await process.emit.wait_for(JobFinished)
    await fleet.advance(100)
    assert len(process.emit.of(TimeoutIgnored)) == 4


async def test_job_cut_by_a_drain_keeps_its_attempt_if_its_cleanup_raises(fleet: Fleet) -> None:
    started = asyncio.Event()

    async def cleans_up(context: JobContext) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("the connection is gone")

    (job,) = await fleet.enqueue()
    once = RetryPolicy.uniform(0, base_s=1.0, cap_s=1.0, jitter=Jitter.FULL)
    process = await fleet.start(Handler("work", cleans_up, retry=once, timeout_s=1000.0))
    await started.wait()
    process.stop()
    await fleet.advance(45)
    await process.stopped()
    view = await fleet.view(job)
    assert (view.state, view.attempt, len(view.failures)) == ("available", 0, 0)
