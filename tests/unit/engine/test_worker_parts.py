"""The parts of a worker by their names: claim loop, runs, suspects and drain, each with its own state."""

from __future__ import annotations

from fairlead.engine.jobs.drain import RUN_SHARE
from fairlead.engine.jobs.suspects import IDLE_WAIT_S
from tests.support.engine import IDS, new_job
from tests.support.process import Fleet, Gate


async def test_drain_names_the_end_of_running_jobs_once_it_is_requested(fleet: Fleet) -> None:
    gate = Gate()
    process = await fleet.start(gate.handler, grace_s=20.0)
    drain = process.worker.drain
    assert (drain.is_requested, drain.cancel_at_mono()) == (False, None)
    await fleet.advance(7)
    process.stop()
    assert (drain.is_requested, drain.cancel_at_mono()) == (True, 7 + 20 * RUN_SHARE)
    process.stop()
    assert (
        drain.cancel_at_mono() == 7 + 20 * RUN_SHARE
    )  # a second stop shortens the waits, not the time of new runs


async def test_runs_start_no_job_that_was_claimed_under_a_lost_session(fleet: Fleet) -> None:
    gate = Gate()
    await fleet.enqueue(new_job("other"))
    process = await fleet.start(gate.handler)
    (job,) = await fleet.claim("other")
    runs = process.worker.runs
    runs.start(job, IDS.uuid7())
    assert (len(runs), runs.job_ids(), process.worker.acks.pending) == (0, [], 1)
    await fleet.settle()
    assert await fleet.jobs.counts() == {"available": 1}


async def test_claim_loop_remembers_that_a_claim_found_nothing_until_it_is_woken(fleet: Fleet) -> None:
    gate = Gate()
    process = await fleet.start(gate.handler)
    loop = process.worker.claim_loop
    await fleet.settle()
    assert not loop.more_work_hinted
    process.worker.wake()
    assert loop.more_work_hinted
    assert loop.woken.is_set()


async def test_held_suspect_waits_for_the_runs_and_goes_back_when_it_is_late(fleet: Fleet) -> None:
    gate = Gate(timeout_s=3600.0)
    await fleet.enqueue()
    process = await fleet.start(gate.handler)
    await gate.wait_running(1)
    (suspect,) = await fleet.enqueue(new_job())
    fleet.database.jobs[suspect.job_id].crash_count = 1
    suspects = process.worker.suspects
    await fleet.advance(3)
    assert (suspects.has_suspect, len(process.worker.runs)) == (True, 1)
    await fleet.advance(IDLE_WAIT_S)
    assert not suspects.has_suspect
    assert (await fleet.view(suspect)).state == "available"
