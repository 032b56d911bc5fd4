"""Two tenants who have one of everything, and what either may ask of the stores about itself.

OURS asks, THEIRS is there to be seen by mistake. An act gives what differs where a row of another tenant was
taken for its own; what stands in the database of other tenants is told by `others`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from uuid import UUID

from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.postgres.audit import PostgresAuditStore
from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.data_keys import PostgresKeyStore
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.dead_letters import PostgresDeadLetterStore
from fairlead.adapters.postgres.gate_notes import PostgresGateNotes
from fairlead.adapters.postgres.gate_overrides import PostgresOverrideStore
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.engine.ports import (
    AuditRecord,
    ClaimFilter,
    Connection,
    ConnectionKey,
    Credential,
    DataKey,
    DeadLetterFilter,
    Discarded,
    FailureRecord,
    GroupCap,
    SettingsChange,
    TenantShare,
)
from fairlead.policy.jobs.lane import Scope, ScopeKind
from fairlead.policy.limits.override import OverrideKind, OverrideScope
from tests.contract.credential_steps import new_credential
from tests.support.engine import NOBODY, new_job
from tests.support.rows import rows, run
from tests.support.seeds import a_session

OURS, THEIRS, NEW = "acme", "globex", "initech"
"""NEW has nothing yet."""
HERE, THERE = ConnectionKey(OURS, "shopify"), ConnectionKey(THEIRS, "shopify")
FAILURE = FailureRecord("transient_server", "boom", "it failed", 0.5, 1)
TABLES = (
    "audit",
    "concurrency_cap",
    "connection",
    "credential",
    "data_key",
    "dead_letter",
    "gate_override",
    "job",
    "lane",
    "lane_name",
    "observed_limit",
    "pause",
    "refresh_attempt",
    "refresh_backoff",
    "tenant_setting",
)
_IDS = SystemIds()
_TENANT_COLUMN = {"pause": "CASE scope WHEN 'tenant' THEN key ELSE tenant_id END"}


@dataclass(frozen=True, slots=True)
class World:
    """The stores over one database, and the ids of what THEIRS has there."""

    database: Database
    credentials: PostgresCredentialStore
    notes: PostgresGateNotes
    jobs: PostgresJobStore
    dead_letters: PostgresDeadLetterStore
    lanes: PostgresLaneStore
    audit: PostgresAuditStore
    keys: PostgresKeyStore
    overrides: PostgresOverrideStore
    connection: Connection
    waiting: UUID
    dead: UUID
    our_dead: UUID

    def over(self, database: Database) -> World:
        """The same over a copy of the database."""
        copied = _world(database)
        return replace(
            copied,
            connection=self.connection,
            waiting=self.waiting,
            dead=self.dead,
            our_dead=self.our_dead,
        )

    async def close(self) -> None:
        """Let go of the batches."""
        await self.credentials.close()
        await self.notes.close()
        await self.jobs.close()


def _world(database: Database) -> World:
    return World(
        database,
        PostgresCredentialStore(database),
        PostgresGateNotes(database),
        PostgresJobStore(database, _IDS, notify=False),
        PostgresDeadLetterStore(database, notify=False),
        PostgresLaneStore(database, notify=False),
        PostgresAuditStore(database),
        PostgresKeyStore(database),
        PostgresOverrideStore(database),
        Connection(NOBODY, THERE, None, None, "", {}, {}),
        waiting=NOBODY,
        dead=NOBODY,
        our_dead=NOBODY,
    )


async def two_tenants(database: Database) -> World:
    """Everything there is of tenants, once for each of the two; a data key for THEIRS alone."""
    world = _world(database)
    session_id = await a_session(database)
    dead, waiting = {}, NOBODY
    about_ours = [await _died(world, THEIRS, session_id, key) for key in ("a", "b")]
    for tenant in (OURS, THEIRS):
        dead[tenant] = await _died(world, tenant, session_id)
        key = "key" if tenant == THEIRS else None
        later = new_job(tenant_id=tenant, group_key="g", delay_s=3600.0, unique_key=key)
        [stored] = await world.jobs.enqueue([later])
        waiting = stored.job_id
        await world.credentials.create(new_credential(ConnectionKey(tenant, "shopify")))
        await world.audit.append([AuditRecord(_IDS.uuid7(), "act", "ann", tenant)])
        await world.overrides.put(
            OverrideKind.DISABLED, OverrideScope(tenant, "shopify", "default"), reason="r", actor="ann"
        )
        for scope in (Scope(ScopeKind.TENANT, tenant), Scope(ScopeKind.GROUP, "g", tenant)):
            await world.lanes.pause(scope, None, reason="r", by="ann")
        await world.lanes.set_tenant(TenantShare(tenant, max_running=5))
        await world.lanes.set_group_cap(GroupCap("g", tenant, 3))
    await _name_our_connection(world, about_ours)
    await world.credentials.create(new_credential(THERE._replace(provider="xero")))
    await world.keys.adopt(DataKey(_IDS.uuid7(), THEIRS, "m", b"wrapped"))
    await run(
        database, "UPDATE connection SET created_at = now() - interval '30 min' WHERE tenant_id = $1", THEIRS
    )
    credentials = await world.credentials.read(THERE)
    assert credentials is not None
    return replace(
        world, connection=credentials.connection, waiting=waiting, dead=dead[THEIRS], our_dead=dead[OURS]
    )


async def _died(world: World, tenant: str, session_id: UUID, key: str = "key") -> UUID:
    await world.jobs.enqueue([new_job(tenant_id=tenant, unique_key=key)])
    [job] = await world.jobs.claim(ClaimFilter(), 1, session_id)
    dead_letter_id = _IDS.uuid7()
    await world.jobs.acknowledge([Discarded(job.job_id, job.lease_id, dead_letter_id, FAILURE)])
    return dead_letter_id


async def _name_our_connection(world: World, dead_letter_ids: list[UUID]) -> None:
    """Make a dead refresh of THEIRS, and other dead work, name the connection of OURS."""
    ours = await world.credentials.read(HERE)
    assert ours is not None
    for dead_letter_id, kind in zip(dead_letter_ids, ("token.refresh", "sync"), strict=True):
        await run(
            world.database,
            "UPDATE dead_letter SET connection_id = $2, kind = $3, category = 'permanent_auth'"
            " WHERE dead_letter_id = $1",
            dead_letter_id,
            ours.connection.connection_id,
            kind,
        )


async def others(database: Database) -> dict[str, list[str]]:
    """All rows of tables of tenants that are neither OURS nor NEW's, as text."""
    rows_by_table = {}
    for table in TABLES:
        tenant_column = _TENANT_COLUMN.get(table, "tenant_id")
        theirs = f"SELECT t::text AS text FROM {table} t WHERE {tenant_column} <> ALL ($1) ORDER BY 1"
        rows_by_table[table] = [row["text"] for row in await rows(database, theirs, [OURS, NEW])]
    return rows_by_table


# ---- acts ------------------------------------------------------------------------------------------

DoneAct = Callable[[World], Awaitable[object]]


def _names(credentials: list[Credential]) -> list[tuple[str, ...]]:
    return [tuple(credential.connection.key) for credential in credentials]


async def _search_connections(world: World) -> object:
    return _names(await world.credentials.search(tenant=OURS, provider=None, state=None, limit=9))


async def _read_connection(world: World) -> object:
    credential = await world.credentials.read(HERE._replace(provider="xero"))
    return credential and tuple(credential.connection.key)


async def _await_grant(world: World) -> object:
    grant = await world.credentials.await_grant(HERE._replace(provider="xero"))
    return grant and grant.connection_id


async def _read_for_the_gate(world: World) -> object:
    connection = await world.notes.connection(HERE._replace(provider="xero"))
    return connection and tuple(connection.key)


async def _age_for_the_gate(world: World) -> object:
    connection = await world.notes.connection(HERE)
    return connection is not None and connection.existed_s > 900.0


async def _connect(world: World) -> object:
    return await world.credentials.create(new_credential(ConnectionKey(NEW, "shopify")))


async def _reconnect(world: World) -> object:
    new = new_credential(HERE, connection_id=world.connection.connection_id, generation=2)
    return await world.credentials.replace(new)


async def _reconnect_ours(world: World) -> object:
    """Dead letters of THEIRS name this connection."""
    ours = await world.credentials.read(HERE)
    assert ours is not None
    new = new_credential(HERE, connection_id=ours.connection.connection_id, generation=ours.generation + 1)
    return await world.credentials.replace(new)


async def _configure(world: World) -> object:
    change = SettingsChange(replace(world.connection, key=HERE), {"calls": 9})
    return await world.credentials.configure(change, actor="ann", audit_id=_IDS.uuid7())


async def _revoke(world: World) -> object:
    who_why = {"actor": "ann", "reason": "left", "audit_id": _IDS.uuid7()}
    return await world.credentials.revoke(world.connection.connection_id, OURS, **who_why)  # type: ignore[arg-type]


async def _remove(world: World) -> object:
    connection_id = world.connection.connection_id
    return await world.credentials.remove(connection_id, OURS, actor="ann", audit_id=_IDS.uuid7())


async def _current_key(world: World) -> object:
    key = await world.keys.current(OURS)
    return key and key.tenant


async def _first_key(world: World) -> object:
    return (await world.keys.adopt(DataKey(_IDS.uuid7(), OURS, "m", b"wrapped"))).tenant


async def _trail(world: World) -> object:
    return {record.tenant for _, record in await world.audit.search(tenant=OURS, limit=99)}


async def _search_jobs(world: World) -> object:
    jobs = await world.jobs.search(state=None, kind=None, tenant_id=OURS, queue=None, limit=99)
    return {job.tenant_id for job in jobs}


async def _cancel(world: World) -> object:
    return await world.jobs.cancel(world.waiting, "why", tenant_id=OURS)


async def _retry(world: World) -> object:
    return await world.jobs.retry_now(world.waiting, tenant_id=OURS)


async def _search_dead(world: World) -> object:
    letters = await world.dead_letters.search(status=None, category=None, tenant_id=OURS, kind=None, limit=99)
    return {entry.tenant_id for entry in letters}


async def _find_at_rest(world: World) -> object:
    """THEIRS has an open job of the same key."""
    letters = await world.dead_letters.find(DeadLetterFilter(tenant_id=OURS), limit=99, at_rest=True)
    return {entry.tenant_id for entry in letters}


async def _find_dead(world: World) -> object:
    letters = await world.dead_letters.find(DeadLetterFilter(tenant_id=OURS), limit=99)
    return {entry.tenant_id for entry in letters}


async def _group_dead(world: World) -> object:
    groups = await world.dead_letters.group(DeadLetterFilter(tenant_id=OURS), "tenant_id", 99)
    return {(group.value, group.entries) for group in groups}


async def _redrive(world: World) -> object:
    return await world.dead_letters.redrive(world.dead, new_job(tenant_id=OURS))


async def _redrive_ours(world: World) -> object:
    return await world.dead_letters.redrive(world.our_dead, new_job(tenant_id=OURS))


async def _resolve(world: World) -> object:
    closing = {"status": "abandoned", "resolution": "abandoned", "by": "ann", "reason": "old"}
    return await world.dead_letters.resolve(world.dead, tenant_id=OURS, **closing)


async def _switch(world: World) -> object:
    return await world.overrides.put(OverrideKind.ISOLATED, OverrideScope(*HERE), reason="r", actor="ann")


async def _end_switch(world: World) -> object:
    return await world.overrides.end(OverrideKind.DISABLED, OverrideScope(*HERE))


async def _fade(world: World) -> object:
    return await world.overrides.start_rollout(OverrideScope(*HERE), 60.0)


async def _share(world: World) -> object:
    return await world.lanes.tenant(NEW)


async def _set_share(world: World) -> object:
    await world.lanes.set_tenant(TenantShare(NEW, weight=2.0))
    return await rows(world.database, "SELECT max_running FROM concurrency_cap WHERE tenant_id = $1", NEW)


async def _forget_share(world: World) -> object:
    return await world.lanes.set_tenant(TenantShare(OURS))


async def _cap_group(world: World) -> object:
    return await world.lanes.set_group_cap(GroupCap("h", OURS, 2))


async def _uncap_group(world: World) -> object:
    return await world.lanes.clear_group_cap("g", OURS)


async def _pause(world: World) -> object:
    return await world.lanes.pause(Scope(ScopeKind.GROUP, "h", OURS), None, reason="r", by="ann")


async def _pause_all(world: World) -> object:
    return await world.lanes.pause(Scope(ScopeKind.TENANT, NEW), None, reason="r", by="ann")


async def _resume(world: World) -> object:
    return await world.lanes.resume(Scope(ScopeKind.GROUP, "g", OURS))


async def _resume_all(world: World) -> object:
    return await world.lanes.resume(Scope(ScopeKind.TENANT, OURS))


ACTS: dict[str, tuple[DoneAct, ...]] = {
    "audit_search_tenant": (_trail,),
    "connection_configure": (_configure,),
    "connection_insert": (_connect,),
    "connection_remove": (_remove,),
    "credential_read": (_read_connection,),
    "credential_replace": (_reconnect, _reconnect_ours),
    "credential_revoke": (_revoke,),
    "credential_search": (_search_connections,),
    "data_key_current": (_current_key,),
    "data_key_insert": (_first_key,),
    "dead_letter_find": (_find_dead, _search_dead, _find_at_rest),
    "dead_letter_group": (_group_dead,),
    "dead_letter_redrive": (_redrive, _redrive_ours),
    "dead_letter_resolve": (_resolve,),
    "gate_connection": (_read_for_the_gate, _age_for_the_gate),
    "gate_override_end": (_end_switch,),
    "gate_override_rollout": (_fade,),
    "gate_override_set": (_switch,),
    "grant_await": (_await_grant,),
    "group_cap_clear": (_uncap_group,),
    "group_cap_set": (_cap_group,),
    "job_cancel": (_cancel,),
    "job_retry_now": (_retry,),
    "job_search": (_search_jobs,),
    "pause_end": (_resume, _resume_all),
    "pause_set": (_pause, _pause_all),
    "concurrency_cap_apply": (_set_share, _forget_share),
    "tenant_forget": (_forget_share,),
    "tenant_list": (_share,),
    "tenant_set": (_set_share,),
}
"""Each statement that the second wall is for, and what makes it run."""
