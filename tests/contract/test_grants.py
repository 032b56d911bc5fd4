"""CredentialStore: work waits for a grant and goes on with it (Q6), and people are told of a loss once."""

from __future__ import annotations

from dataclasses import replace

from fairlead.engine.ports import ClaimFilter
from fairlead.policy.jobs.lane import Scope, ScopeKind, connection_group
from tests.contract.credential_steps import (
    KEY,
    again,
    connected,
    intent,
    read_credential,
    reauth_requirement,
    sent,
    unknown_rotation,
)
from tests.contract.stores import ANY, Stores, a_session, claimed, discarded
from tests.support.engine import IDS, new_job

GROUP = connection_group(KEY.provider, KEY.account)
MINE = Scope(ScopeKind.GROUP, GROUP, KEY.tenant)

# ---- work that waits for a grant (Q6) --------------------------------------------------------------


async def test_work_waits_for_a_grant_and_goes_on_with_it(stores: Stores) -> None:
    credential, worker = await connected(stores), await a_session(stores)
    waits = new_job(provider=KEY.provider, tenant_id=KEY.tenant, group_key=GROUP)
    other = new_job(provider=KEY.provider, tenant_id="other", group_key=GROUP)
    await stores.jobs.enqueue([waits, other])
    assert await stores.credentials.require_reauth(reauth_requirement(credential))
    claim_filter = ClaimFilter(kinds=("work",))
    assert [job.job_id for job in await stores.jobs.claim(claim_filter, 9, worker)] == [other.job_id]
    [pause] = await stores.lanes.pauses(10)
    assert (pause.scope, pause.until, pause.reason, pause.by) == (MINE, None, "needs_reauth", "fairlead")
    assert await stores.credentials.replace(again(credential))
    assert await stores.lanes.pauses(10) == []
    assert [job.job_id for job in await stores.jobs.claim(claim_filter, 9, worker)] == [waits.job_id]


async def test_work_goes_on_with_an_answer_that_comes_late(stores: Stores) -> None:
    """Its owner was taken for dead, then the grant too; and the owner woke with a token."""
    credential, owner = await connected(stores), await a_session(stores)
    first, worker = intent(credential, owner), await a_session(stores, 2)
    answer = await sent(stores, first)
    waits = new_job(provider=KEY.provider, tenant_id=KEY.tenant, group_key=GROUP)
    await stores.jobs.enqueue([waits])
    assert await stores.credentials.require_reauth(reauth_requirement(credential, first.attempt_id))
    assert len(await stores.lanes.pauses(10)) == 1
    await stores.pass_time(5)
    assert await stores.credentials.settle(answer) == "settled"
    assert (await read_credential(stores)).state == "active"
    assert await stores.lanes.pauses(10) == []
    jobs = await stores.jobs.claim(ClaimFilter(kinds=("work",)), 9, worker)
    assert [job.job_id for job in jobs] == [waits.job_id]


async def test_work_goes_on_where_the_connection_is_no_more(stores: Stores) -> None:
    credential = await connected(stores)
    assert await stores.credentials.require_reauth(reauth_requirement(credential))
    await stores.credentials.remove(
        credential.connection.connection_id,
        credential.connection.key.tenant,
        actor="ann",
        audit_id=IDS.uuid7(),
    )
    assert await stores.lanes.pauses(10) == []


async def test_pause_of_an_operator_stays_after_a_new_grant(stores: Stores) -> None:
    credential = await connected(stores)
    await stores.lanes.pause(MINE, None, reason="moving", by="ann")
    assert await stores.credentials.require_reauth(reauth_requirement(credential))
    assert await stores.credentials.replace(again(credential))
    [pause] = await stores.lanes.pauses(10)
    assert (pause.reason, pause.by) == ("moving", "ann")


async def test_a_pause_that_ends_gives_way_to_the_wait(stores: Stores) -> None:
    credential = await connected(stores)
    await stores.lanes.pause(MINE, 10.0, reason="429", by="ann")
    assert await stores.credentials.require_reauth(reauth_requirement(credential))
    await stores.pass_time(20)
    [pause] = await stores.lanes.pauses(10)
    assert (pause.until, pause.reason, pause.by) == (None, "needs_reauth", "fairlead")


async def test_work_is_held_for_a_gone_grant_alone(stores: Stores) -> None:
    credential = await connected(stores)
    connection_id = credential.connection.connection_id
    assert await stores.credentials.await_grant(KEY._replace(account="none")) is None
    await stores.pass_time(30)
    state = await stores.credentials.await_grant(KEY)
    assert state is not None
    assert (state.connection_id, state.is_gone) == (connection_id, False)
    assert state.changed_s >= 30
    assert await stores.lanes.pauses(10) == []
    assert await stores.credentials.require_reauth(reauth_requirement(credential))
    await stores.lanes.resume(MINE)
    state = await stores.credentials.await_grant(KEY)
    assert state is not None
    assert state.is_gone
    [pause] = await stores.lanes.pauses(10)
    assert (pause.scope, pause.until, pause.reason, pause.by) == (MINE, None, "needs_reauth", "fairlead")


async def test_work_of_a_revoked_connection_is_held_until_it_is_connected_again(stores: Stores) -> None:
    credential, worker = await connected(stores), await a_session(stores)
    connection_id = credential.connection.connection_id
    about = {"actor": "ann", "reason": "left", "audit_id": IDS.uuid7()}
    assert await stores.credentials.revoke(connection_id, KEY.tenant, **about)
    state = await stores.credentials.await_grant(KEY)
    assert state is not None
    assert state.is_gone
    waits = new_job(provider=KEY.provider, tenant_id=KEY.tenant, group_key=GROUP)
    await stores.jobs.enqueue([waits])
    assert await stores.jobs.claim(ClaimFilter(kinds=("work",)), 9, worker) == []
    assert await stores.credentials.replace(again(credential))
    jobs = await stores.jobs.claim(ClaimFilter(kinds=("work",)), 9, worker)
    assert [job.job_id for job in jobs] == [waits.job_id]


# ---- people are told -------------------------------------------------------------------------------


async def test_a_loss_is_told_once_and_stands_open(stores: Stores) -> None:
    credential = await connected(stores)
    connection_id, worker = credential.connection.connection_id, await a_session(stores)
    verdict = reauth_requirement(credential)
    assert await stores.credentials.require_reauth(verdict)
    assert not await stores.credentials.require_reauth(reauth_requirement(credential))
    [job] = await stores.jobs.claim(ANY, 9, worker)
    assert (job.job_id, job.kind, job.tenant_id) == (verdict.notice_id, "event.needs_reauth", "acme")
    assert (job.provider, job.group_key, job.priority) == ("mercadolibre", str(connection_id), 1)
    assert job.args["why"] == "invalid_grant"
    assert job.args["event_id"] == str(verdict.notice_id)
    assert "occurred_at" in job.args
    [entry] = await stores.dead_letters.search(status=None, category=None, tenant_id=None, kind=None, limit=9)
    assert (entry.kind, entry.status, entry.category) == ("token.refresh", "pending_review", "permanent_auth")
    assert (entry.code, entry.connection_id, entry.unique_key) == (
        "invalid_grant",
        connection_id,
        str(connection_id),
    )
    assert entry.args == {"connection_id": str(connection_id), "generation": 1}
    assert entry.token_expires_at == credential.expires_at
    assert [due.dead_letter_id for due in await stores.dead_letters.due(9)] == [entry.dead_letter_id]
    acts = [record.act for record in await stores.trail()]
    assert acts == ["connection.created", "connection.needs_reauth"]
    assert (await stores.trail())[-1].details == {"generation": 1, "reason": "invalid_grant"}


async def test_a_second_loss_folds_into_the_open_entry(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    assert await stores.credentials.require_reauth(reauth_requirement(credential))
    assert await stores.credentials.replace(again(credential))
    healed = await stores.dead_letters.search(
        status="auto_resolved", category=None, tenant_id=None, kind=None, limit=9
    )
    assert [(entry.resolution, entry.resolved_by) for entry in healed] == [("reauthorize", "test")]
    second = await read_credential(stores)
    assert await stores.credentials.require_reauth(reauth_requirement(second))
    assert await stores.dead_letters.open_count("default") == 1
    jobs = await stores.jobs.claim(ANY, 9, owner)
    assert len(jobs) == 2, "each loss is told"


async def test_a_refresh_closes_what_was_open_about_refreshes_alone(stores: Stores) -> None:
    credential, owner = await connected(stores), await a_session(stores)
    connection_id = credential.connection.connection_id
    for kind in ("token.refresh", "work"):
        job = await claimed(stores, owner, kind=kind, tenant_id=KEY.tenant)
        await stores.jobs.acknowledge([replace(discarded(job), connection_id=connection_id)])
    assert await stores.credentials.settle(await sent(stores, intent(credential, owner))) == "settled"
    entries = await stores.dead_letters.search(status=None, category=None, tenant_id=None, kind=None, limit=9)
    assert {(entry.kind, entry.status, entry.resolution) for entry in entries} == {
        ("token.refresh", "auto_resolved", "manual_refresh"),
        ("work", "pending_review", None),
    }


async def test_a_new_grant_closes_dead_refreshes_and_hurries_work_that_asked_for_it(stores: Stores) -> None:
    """Other work has died of something else, and other tenants may name any connection."""
    credential, owner = await connected(stores), await a_session(stores)
    connection_id = credential.connection.connection_id
    auth = {"category": "permanent_auth", "code": "needs_reauth"}
    for kind, tenant_id, cause in (
        ("token.refresh", KEY.tenant, auth),
        ("asked", KEY.tenant, auth),
        ("broken", KEY.tenant, {}),
        ("asked", "other", auth),
    ):
        dead = discarded(await claimed(stores, owner, kind=kind, tenant_id=tenant_id), action_in_s=None)
        dead = replace(dead, connection_id=connection_id, failure=replace(dead.failure, **cause))
        await stores.jobs.acknowledge([dead])
    await stores.pass_time(1)
    assert await stores.credentials.replace(again(credential))
    entries = await stores.dead_letters.search(status=None, category=None, tenant_id=None, kind=None, limit=9)
    assert sorted((entry.kind, entry.tenant_id, entry.status) for entry in entries) == [
        ("asked", KEY.tenant, "pending_review"),
        ("asked", "other", "pending_review"),
        ("broken", KEY.tenant, "pending_review"),
        ("token.refresh", KEY.tenant, "auto_resolved"),
    ]
    (due,) = await stores.dead_letters.due(9)
    assert (due.kind, due.tenant_id, due.regranted) == ("asked", KEY.tenant, True)


async def test_each_act_leaves_one_line(stores: Stores) -> None:
    credential, first = await unknown_rotation(stores)
    replay = intent(credential, first.session_id)
    granted = await stores.credentials.claim_replay(replay, 0)
    assert granted is not None
    sent_at = await stores.credentials.mark_sent(replay.connection_id, replay.attempt_id)
    assert sent_at is not None
    assert await stores.credentials.require_reauth(reauth_requirement(credential, replay.attempt_id))
    assert await stores.credentials.replace(again(credential, actor="ann"))
    trail = await stores.trail()
    assert [(record.act, record.actor) for record in trail] == [
        ("connection.created", "test"),
        ("token.outcome_unknown", "fairlead"),
        ("connection.needs_reauth", "fairlead"),
        ("connection.reauthorised", "ann"),
    ]
    assert {(record.tenant, record.provider, record.connection_id) for record in trail} == {
        ("acme", "mercadolibre", credential.connection.connection_id)
    }
    assert [record.details for record in trail] == [
        {},
        {"generation": 1, "reason": "cut"},
        {"generation": 1, "reason": "invalid_grant"},
        {"generation": 2},
    ]
