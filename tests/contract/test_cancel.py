"""JobStore.cancel: a job that runs keeps its place until its handler has ended (R55)."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.engine.ports import Cancelled, Completed, Discarded, Renewed, Rescheduled, TenantShare
from tests.contract.stores import ANY, Stores, a_session, claimed, discarded
from tests.support.engine import NOBODY, new_job


async def test_a_cancelled_running_job_keeps_its_place_until_it_has_ended(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.lanes.set_tenant(TenantShare("acme", max_running=1))
    job = await claimed(stores, session_id)
    await stores.jobs.enqueue([new_job()])
    assert await stores.sessions.heartbeat(session_id, [job.job_id]) == Renewed()
    assert await stores.jobs.cancel(job.job_id, "operator", state="available") is None, "it has begun"
    assert await stores.jobs.cancel(job.job_id, "operator", state="running") == "running"
    assert await stores.jobs.cancel(job.job_id, "somebody else") == "running"
    assert await stores.sessions.heartbeat(session_id, [job.job_id, NOBODY]) == Renewed(
        frozenset({job.lease_id})
    )
    assert await stores.jobs.claim(ANY, 9, session_id) == [], "it runs on, under the cap"
    assert await stores.jobs.acknowledge([Rescheduled(job.job_id, job.lease_id, 0.0)])
    (other,) = await stores.jobs.claim(ANY, 9, session_id)
    assert other.job_id != job.job_id, "it is not run again"
    assert await stores.jobs.expire_due(9) == 1
    view = await stores.jobs.get(job.job_id)
    assert view is not None
    assert (view.state, view.result) == ("cancelled", {"cancelled": "operator"})
    assert await stores.dead_letters.open_count("default") == 0
    assert await stores.jobs.cancel(job.job_id, "operator") is None
    assert await stores.jobs.cancel(NOBODY, "operator") is None


@pytest.mark.parametrize("end", [Cancelled, Completed, Discarded, "poison"])
async def test_how_a_job_that_was_cancelled_while_it_ran_ends(stores: Stores, end: Any) -> None:
    session_id, survivor = await a_session(stores), await a_session(stores, 9)
    first = discarded(await claimed(stores, session_id))
    await stores.jobs.acknowledge([first])
    assert await stores.dead_letters.redrive(first.dead_letter_id, new_job(replay_of=first.dead_letter_id))
    (job,) = await stores.jobs.claim(ANY, 9, session_id)
    assert await stores.jobs.cancel(job.job_id, "operator") == "running"
    entry = await stores.dead_letters.get(first.dead_letter_id)
    assert entry is not None
    assert entry.replay_job_id == job.job_id, "it is under way yet"
    if end == "poison":
        await stores.sessions.mark_dead([session_id])
        assert await stores.sessions.rescue(survivor, 0.0, 1, 100)
    else:
        outcomes = {
            Cancelled: Cancelled(job.job_id, job.lease_id, "while it ran"),
            Completed: Completed(job.job_id, job.lease_id),
            Discarded: discarded(job),
        }
        assert await stores.jobs.acknowledge([outcomes[end]])
    view = await stores.jobs.get(job.job_id)
    entry = await stores.dead_letters.get(first.dead_letter_id)
    assert view is not None
    assert entry is not None
    done = end is Completed
    assert done or view.result == {"cancelled": "operator"}
    assert view.state == ("completed" if done else "cancelled")
    assert entry.status == ("auto_resolved" if done else "pending_review")
    assert await stores.dead_letters.open_count("default") == (0 if done else 1), "no entry of its own"
    assert done or entry.replay_job_id is None
