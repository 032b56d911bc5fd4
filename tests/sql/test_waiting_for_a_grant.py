"""Work of a connection that needs a new grant waits, costs a claim nothing, and goes on with it (Q6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.engine.ports import ClaimFilter, Credential, NewJob
from fairlead.policy.jobs.lane import Scope, ScopeKind, connection_group
from fairlead.testing._kit.ids import CountedIds
from tests.contract.credential_steps import claim
from tests.sql.test_credentials import KEY, answer, connected, intent, new, reauth_requirement
from tests.support.rows import rows
from tests.support.seeds import a_session

IDS = CountedIds(20_000)
GROUP = connection_group(KEY.provider, KEY.account)
MINE = Scope(ScopeKind.GROUP, GROUP, KEY.tenant)


class Stage:
    """The stores, one connection and one worker."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.credentials = PostgresCredentialStore(database)
        self.jobs = PostgresJobStore(database, IDS, notify=False)
        self.lanes = PostgresLaneStore(database, notify=False)

    async def begin(self) -> Credential:
        self.session_id = await a_session(self.database)
        return await connected(self.credentials)

    async def enqueued(self, **fields: Any) -> UUID:
        fields = {"provider": KEY.provider, "group_key": GROUP} | fields
        job = NewJob(IDS.uuid7(), "sync", fields.pop("tenant_id", KEY.tenant), **fields)
        await self.jobs.enqueue([job])
        return job.job_id

    async def claimed(self) -> set[UUID]:
        jobs = await self.jobs.claim(ClaimFilter(kinds=("sync",)), 10, self.session_id)
        return {job.job_id for job in jobs}


@pytest.fixture
async def stage(database: Database):
    stage = Stage(database)
    yield stage
    await stage.credentials.close()


async def test_job_waits_for_a_grant_and_resumes_with_it(stage: Stage) -> None:
    credential = await stage.begin()
    waits, others = [await stage.enqueued()], [await stage.enqueued(tenant_id="other")]
    others.append(await stage.enqueued(provider="shopify", group_key="shopify/default"))
    assert await stage.credentials.require_reauth(reauth_requirement(credential, None))
    waits.append(await stage.enqueued())  # into a lane that is parked
    waits.append(await stage.enqueued(priority=1))  # into one that was not there
    assert await stage.claimed() == set(others)
    [pause] = await stage.lanes.pauses(10)
    assert (pause.scope, pause.until, pause.reason, pause.by) == (MINE, None, "needs_reauth", "fairlead")
    ready = await rows(
        stage.database,
        "SELECT FROM lane WHERE state = 'ready' AND (tenant_id, group_key) = ($1, $2)",
        KEY.tenant,
        GROUP,
    )
    assert ready == []

    again = replace(new(generation=2), connection_id=credential.connection.connection_id)
    assert await stage.credentials.replace(again)
    assert await stage.lanes.pauses(10) == []
    assert await stage.claimed() == set(waits)


async def test_waiting_job_resumes_when_its_connection_is_removed(stage: Stage) -> None:
    credential = await stage.begin()
    job_id = await stage.enqueued()
    assert await stage.credentials.require_reauth(reauth_requirement(credential, None))
    assert await stage.claimed() == set()
    assert await stage.credentials.remove(
        credential.connection.connection_id, credential.connection.key.tenant, actor="ada", audit_id=uuid4()
    )
    assert await stage.claimed() == {job_id}  # its handler says what is wrong


async def test_waiting_job_resumes_after_a_late_token_answer(stage: Stage) -> None:
    """The grant was taken for dead, and the first sender woke with a token: nobody else lifts the pause."""
    credential = await stage.begin()
    attempt = intent(credential, stage.session_id)
    granted = await claim(stage.credentials, attempt)
    assert granted is not None
    settlement = await answer(stage.credentials, attempt, granted)
    job_id = await stage.enqueued()
    assert await stage.credentials.require_reauth(reauth_requirement(credential, attempt.attempt_id))
    assert await stage.claimed() == set()
    assert await stage.credentials.settle(settlement) == "settled"
    assert await stage.lanes.pauses(10) == []
    assert await stage.claimed() == {job_id}


async def test_a_persons_pause_stays_a_persons(stage: Stage) -> None:
    credential = await stage.begin()
    job_id = await stage.enqueued()
    await stage.lanes.pause(MINE, None, reason="month end", by="ada")
    assert await stage.credentials.require_reauth(reauth_requirement(credential, None))
    again = replace(new(generation=2), connection_id=credential.connection.connection_id)
    assert await stage.credentials.replace(again)
    [pause] = await stage.lanes.pauses(10)
    assert (pause.reason, pause.by) == ("month end", "ada")
    assert await stage.claimed() == set()
    assert await stage.lanes.resume(MINE)
    assert await stage.claimed() == {job_id}


async def test_a_providers_pause_becomes_one_without_end(stage: Stage) -> None:
    credential = await stage.begin()
    await stage.lanes.pause(MINE, 60.0, reason="429", by="a job")
    assert await stage.credentials.require_reauth(reauth_requirement(credential, None))
    [pause] = await stage.lanes.pauses(10)
    assert (pause.until, pause.reason) == (None, "needs_reauth")


async def test_a_loser_pauses_nothing(stage: Stage) -> None:
    credential = await stage.begin()
    assert not await stage.credentials.require_reauth(
        replace(reauth_requirement(credential, None), from_generation=7)
    )
    assert await stage.lanes.pauses(10) == []
