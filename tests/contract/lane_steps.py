"""Steps that the suites of lanes share: jobs by the dozen, and claims until there is nothing left."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from uuid import UUID

from fairlead.engine.ports import ClaimFilter, Completed, Job, NewJob
from fairlead.policy.jobs.lane import Scope, ScopeKind
from tests.contract.stores import ANY, Stores
from tests.support.engine import new_job

LINGER_S = 1.0
"""How long a lane that ran empty may still be looked at, and how soon a full cap is looked at again."""
MOST_LOOKS = 300


def jobs_of(tenant_id: str, count: int, **fields: object) -> list[NewJob]:
    """*count* jobs of a tenant, alike."""
    return [new_job(tenant_id=tenant_id, **fields) for _ in range(count)]


def tenant(tenant_id: str) -> Scope:
    return Scope(ScopeKind.TENANT, tenant_id)


def group(key: str, tenant_id: str | None = None) -> Scope:
    return Scope(ScopeKind.GROUP, key, tenant_id)


async def claim_jobs(
    stores: Stores,
    session_id: UUID,
    most: int = 100_000,
    *,
    demand: int = 100,
    claim_filter: ClaimFilter = ANY,
) -> list[Job]:
    """The first *most* jobs in the order of their claims; fewer once a claim gives none."""
    jobs: list[Job] = []
    while len(jobs) < most:
        batch = await stores.jobs.claim(claim_filter, min(demand, most - len(jobs)), session_id)
        if not batch:
            break
        jobs += batch
    return jobs


async def looked_about(stores: Stores, session_id: UUID) -> None:
    """A worker had less than it wanted: the next claim looks for what has fallen due, too.

    While ready lanes fill every claim, one may look for that only so many times a second.
    """
    assert await stores.jobs.claim(ClaimFilter(queues=("nothing",)), 1, session_id) == []


async def done(stores: Stores, jobs: Sequence[Job]) -> None:
    """All of *jobs* are completed."""
    outcomes = [Completed(job.job_id, job.lease_id) for job in jobs]
    assert await stores.jobs.acknowledge(outcomes) == {job.job_id for job in jobs}


async def drained(stores: Stores, session_id: UUID, *, claim_filter: ClaimFilter = ANY) -> list[Job]:
    """All that is to be had by claims alone, time passing as the store tells; each job completed at once.

    Ends when the store says that nothing will be due; fails where it names a time and has nothing then.
    """
    jobs: list[Job] = []
    due_s: float | None = None
    for _ in range(MOST_LOOKS):
        batch = await stores.jobs.claim(claim_filter, 100, session_id)
        suspect = await stores.jobs.claim_suspect(claim_filter, session_id)
        batch += [suspect] if suspect is not None else []
        if batch:
            await done(stores, batch)
            jobs += batch
            continue
        await stores.jobs.expire_due(1000)
        due_s = await stores.jobs.next_due_in_s(claim_filter)
        if due_s is None:
            return jobs
        await stores.pass_time(max(due_s, LINGER_S) + 0.01)
    raise AssertionError(f"due in {due_s} s, and not to be had; {await stores.jobs.counts()}")


def tenants_of(jobs: Sequence[Job]) -> str:
    """Whose they are, in order, as one text: tenants of these suites have names of one letter."""
    return "".join(job.tenant_id for job in jobs)


def longest_run(jobs: Sequence[Job]) -> int:
    """The most jobs of one tenant in a row."""
    return max((len(list(run)) for _, run in groupby(jobs, key=lambda job: job.tenant_id)), default=0)
