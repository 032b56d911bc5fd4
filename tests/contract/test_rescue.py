"""SessionStore: who is alive, whose jobs go back, and what a crash costs (R2, R3)."""

from __future__ import annotations

from uuid import UUID

from fairlead.engine.ports import Completed, Job, Rescheduled
from tests.contract.stores import ANY, LEASE_S, Stores, a_session, claimed, die_out, failed, identity
from tests.support.engine import IDS, NOBODY, new_job

# ---- sessions --------------------------------------------------------------------------------------


async def test_session_says_what_trouble_its_process_has(stores: Stores) -> None:
    session_id = await a_session(stores)
    for trouble in ("resolver: check it", None):
        assert await stores.sessions.heartbeat(session_id, (), trouble)
        assert [view.trouble for view in await stores.sessions.search()] == [trouble]


async def test_session_states_the_version_of_the_application(stores: Stores) -> None:
    for pid, app_version in ((1, "2026.11-a"), (2, None)):
        about = (identity(pid), LEASE_S, "1.0", None, app_version)
        await stores.sessions.open(IDS.uuid7(), *about)
    versions = {view.identity.pid: view.app_version for view in await stores.sessions.search()}
    assert versions == {1: "2026.11-a", 2: None}


async def test_a_session_lives_until_it_is_closed(stores: Stores) -> None:
    session_id = await a_session(stores)
    assert await stores.sessions.heartbeat(session_id)
    (view,) = await stores.sessions.search()
    assert (view.session_id, view.identity, view.version) == (session_id, identity(), "1.0")
    assert (view.lease_s, view.state, view.running_jobs, view.trouble) == (LEASE_S, "alive", 0, None)
    await stores.sessions.close(session_id)
    assert not await stores.sessions.heartbeat(session_id)
    assert [view.state for view in await stores.sessions.search()] == ["stopped"]
    assert not await stores.sessions.heartbeat(NOBODY)


async def test_a_silent_session_is_late_then_lost_and_cannot_come_back(stores: Stores) -> None:
    survivor, silent = await a_session(stores, 1), await a_session(stores, 2)
    await claimed(stores, silent)
    await stores.pass_time(LEASE_S + 1)
    await stores.sessions.heartbeat(survivor)
    states = {view.session_id: (view.state, view.running_jobs) for view in await stores.sessions.search()}
    assert states == {survivor: ("alive", 0), silent: ("late", 1)}
    await die_out(stores, survivor)
    states = {view.session_id: (view.state, view.running_jobs) for view in await stores.sessions.search()}
    assert states == {survivor: ("alive", 0), silent: ("lost", 0)}
    assert not await stores.sessions.heartbeat(silent)


async def test_neighbours_are_of_the_same_boot_and_namespace(stores: Stores) -> None:
    async def opened(pid: int, **fields: str) -> UUID:
        session_id = IDS.uuid7()
        await stores.sessions.open(session_id, identity(pid, **fields), LEASE_S, "1.0")
        return session_id

    await opened(1)
    neighbour = await opened(2)
    closed = await opened(3)
    await opened(4, boot_id="another")
    await opened(5, pid_namespace="pid:[2]")
    await stores.sessions.close(closed)
    assert await stores.sessions.local_sessions(identity(1)) == [(neighbour, identity(2))]


async def test_pruning_takes_sessions_that_ended_long_ago(stores: Stores) -> None:
    kept_session, closed = await a_session(stores, 1), await a_session(stores, 2)
    await stores.sessions.close(closed)
    await stores.pass_time(50)
    assert await stores.sessions.prune(100, 10) == 0
    await stores.pass_time(60)
    assert await stores.sessions.prune(100, 10) == 1
    assert [view.session_id for view in await stores.sessions.search()] == [kept_session]


# ---- rescue ----------------------------------------------------------------------------------------


async def test_the_jobs_of_a_lost_session_go_back_with_their_attempt(stores: Stores) -> None:
    survivor, victim = await a_session(stores, 1), await a_session(stores, 2)
    job = await claimed(stores, victim)
    assert await die_out(stores, survivor) == (1, 0)
    view = await stores.jobs.get(job.job_id)
    assert view is not None
    assert (view.state, view.attempt, view.crash_count) == ("available", 0, 1)
    assert await stores.jobs.acknowledge([Completed(job.job_id, job.lease_id)]) == set()


async def test_a_living_session_keeps_its_jobs(stores: Stores) -> None:
    survivor = await a_session(stores)
    job = await claimed(stores, survivor)
    assert await die_out(stores, survivor) == (0, 0)
    assert await stores.jobs.acknowledge([Completed(job.job_id, job.lease_id)]) == {job.job_id}


async def test_nothing_is_rescued_before_a_full_lease_without_a_gap(stores: Stores) -> None:
    survivor, victim = await a_session(stores, 1), await a_session(stores, 2)
    await claimed(stores, victim)
    await stores.pass_time(10 * LEASE_S)  # nobody asked the database for so long: everyone looks dead
    await stores.sessions.heartbeat(survivor)
    done = await stores.sessions.rescue(survivor, 0.0, 3, 100)
    assert done is not None
    assert (done.ready, done.rescued) == (False, 0)
    await stores.pass_time(1)
    done = await stores.sessions.rescue(survivor, 0.0, 3, 100)
    assert done is not None
    assert (done.ready, done.rescued) == (False, 0)
    assert await stores.sessions.heartbeat(victim)  # it was alive all the time


async def test_proof_of_death_needs_no_lease(stores: Stores) -> None:
    survivor, victim = await a_session(stores, 1), await a_session(stores, 2)
    job = await claimed(stores, victim)
    assert await stores.sessions.mark_dead([victim, NOBODY]) == 1
    assert await stores.sessions.mark_dead([victim]) == 0
    done = await stores.sessions.rescue(survivor, 0.0, 3, 100)
    assert done is not None
    assert (done.rescued, done.dead) == (1, 0)
    view = await stores.jobs.get(job.job_id)
    assert view is not None
    assert (view.state, view.crash_count) == ("available", 1)


async def test_a_closed_session_leaves_its_jobs_without_a_crash(stores: Stores) -> None:
    survivor, leaver = await a_session(stores, 1), await a_session(stores, 2)
    job = await claimed(stores, leaver)
    await stores.sessions.close(leaver)
    (again,) = await stores.jobs.claim(ANY, 1, survivor)
    assert (again.job_id, again.attempt, again.crash_count) == (job.job_id, 1, 0)
    assert again.lease_id != job.lease_id


async def test_lost_session_rescues_no_jobs(stores: Stores) -> None:
    lost, victim = await a_session(stores, 1), await a_session(stores, 2)
    await claimed(stores, victim)
    await stores.sessions.mark_dead([lost, victim])
    assert await stores.sessions.rescue(lost, 0.0, 3, 100) is None
    assert await stores.jobs.counts() == {"running": 1}


async def test_rescue_runs_once_at_a_time_across_the_fleet(stores: Stores) -> None:
    first, other = await a_session(stores, 1), await a_session(stores, 2)
    assert await stores.sessions.rescue(first, 5.0, 3, 100) is not None
    assert await stores.sessions.rescue(other, 5.0, 3, 100) is None
    await stores.pass_time(6)
    assert await stores.sessions.rescue(other, 5.0, 3, 100) is not None


async def test_a_pass_is_bounded(stores: Stores) -> None:
    survivor, victim = await a_session(stores, 1), await a_session(stores, 2)
    await stores.jobs.enqueue([new_job() for _ in range(5)])
    await stores.jobs.claim(ANY, 5, victim)
    await stores.sessions.mark_dead([victim])
    passes = [await stores.sessions.rescue(survivor, 0.0, 3, 2) for _ in range(4)]
    assert [done.rescued for done in passes if done] == [2, 2, 1, 0]


# ---- suspects (R3) ---------------------------------------------------------------------------------


async def crash(stores: Stores, survivor: UUID, pid: int, *, start: bool = True) -> Job | None:
    """A process of *pid* takes the suspect (or the job), begins it and dies; the claim it had."""
    victim = await a_session(stores, pid)
    job = await stores.jobs.claim_suspect(ANY, victim)
    if job is None:
        jobs = await stores.jobs.claim(ANY, 1, victim)
        job = jobs[0] if jobs else None
    elif start:
        assert await stores.jobs.start_suspect(job.job_id, job.lease_id)
    await stores.sessions.mark_dead([victim])
    await stores.sessions.rescue(survivor, 0.0, 3, 100)
    return job


async def test_a_suspect_is_only_to_be_had_alone(stores: Stores) -> None:
    survivor = await a_session(stores)
    await stores.jobs.enqueue([new_job()])
    first = await crash(stores, survivor, 2)
    assert first is not None
    assert await stores.jobs.claim(ANY, 9, survivor) == []
    suspect = await stores.jobs.claim_suspect(ANY, survivor)
    assert suspect is not None
    assert (suspect.job_id, suspect.attempt, suspect.crash_count) == (first.job_id, 1, 1)
    assert await stores.jobs.claim_suspect(ANY, survivor) is None
    assert not await stores.jobs.start_suspect(suspect.job_id, suspect.lease_id + 1)
    assert await stores.jobs.start_suspect(suspect.job_id, suspect.lease_id)
    assert await stores.jobs.start_suspect(suspect.job_id, suspect.lease_id)  # asked again: still ours


async def test_the_third_crash_ends_among_the_dead_letters(stores: Stores) -> None:
    survivor = await a_session(stores)
    await stores.jobs.enqueue([new_job()])
    jobs = [await crash(stores, survivor, pid) for pid in (2, 3, 4, 5)]
    assert [job is not None for job in jobs] == [True, True, True, False]
    (entry,) = await stores.dead_letters.search(
        status=None, category=None, tenant_id=None, kind=None, limit=9
    )
    assert entry.code == "poison"
    assert entry.reason == "its worker died or did not renew its lease in time, 3 times"
    assert await stores.jobs.counts() == {"discarded": 1}


async def test_a_suspect_that_was_reserved_only_has_not_crashed_anybody(stores: Stores) -> None:
    survivor = await a_session(stores)
    await stores.jobs.enqueue([new_job()])
    await crash(stores, survivor, 2)
    for pid in (3, 4, 5):
        await crash(stores, survivor, pid, start=False)
    suspect = await stores.jobs.claim_suspect(ANY, survivor)
    assert suspect is not None
    assert (suspect.crash_count, suspect.attempt) == (1, 1)
    await stores.jobs.acknowledge([Rescheduled(suspect.job_id, suspect.lease_id, 0.0)])
    suspect = await stores.jobs.claim_suspect(ANY, survivor)
    assert suspect is not None
    assert (suspect.crash_count, suspect.attempt) == (1, 1)


async def test_an_end_without_a_crash_clears_the_count(stores: Stores) -> None:
    survivor = await a_session(stores)
    await stores.jobs.enqueue([new_job()])
    await crash(stores, survivor, 2)
    await crash(stores, survivor, 3)
    suspect = await stores.jobs.claim_suspect(ANY, survivor)
    assert suspect is not None
    await stores.jobs.start_suspect(suspect.job_id, suspect.lease_id)
    await stores.jobs.acknowledge([failed(suspect, delay_s=0)])
    assert await stores.jobs.claim_suspect(ANY, survivor) is None
    (job,) = await stores.jobs.claim(ANY, 1, survivor)
    assert (job.crash_count, job.attempt) == (0, 2)
