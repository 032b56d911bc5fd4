"""What is done to an id for a tenant is done where it is its own, and else as to one that is not there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairlead.engine.ports import ConnectionKey, Credential, SettingsChange
from tests.contract.credential_steps import KEY, again, connected, read_credential
from tests.contract.stores import Stores, a_session, claimed, discarded
from tests.support.engine import IDS, NOBODY, new_job

OTHER = "globex"


def of_the_other(credential: Credential) -> Credential:
    """The same connection, as if it were the other tenant's."""
    key = ConnectionKey(OTHER, KEY.provider)
    return replace(credential, connection=replace(credential.connection, key=key))


@pytest.mark.parametrize("tenant", [OTHER, KEY.tenant])
async def test_connections(stores: Stores, tenant: str) -> None:
    credential = await connected(stores)
    named = credential if tenant == KEY.tenant else of_the_other(credential)
    connection_id, is_theirs = credential.connection.connection_id, tenant == KEY.tenant
    actor_fields = {"actor": "ann", "audit_id": IDS.uuid7()}
    change = SettingsChange(named.connection, {"calls": 3})
    assert await stores.credentials.configure(change, **actor_fields) is is_theirs
    assert await stores.credentials.replace(again(named)) is is_theirs
    actor_fields["audit_id"] = IDS.uuid7()
    assert await stores.credentials.revoke(connection_id, tenant, reason="left", **actor_fields) is is_theirs
    if not is_theirs:
        untouched = await read_credential(stores)
        assert (untouched.generation, untouched.state) == (1, "active")
        assert untouched.connection == credential.connection
    actor_fields["audit_id"] = IDS.uuid7()
    assert await stores.credentials.remove(connection_id, tenant, **actor_fields) is is_theirs
    assert (await stores.credentials.read(KEY) is None) is is_theirs
    assert not await stores.credentials.remove(NOBODY, tenant, **actor_fields)


@pytest.mark.parametrize("tenant", [OTHER, "acme"])
async def test_jobs(stores: Stores, tenant: str) -> None:
    [job] = await stores.jobs.enqueue([new_job(delay_s=600.0)])
    is_theirs = tenant == "acme"
    assert await stores.jobs.retry_now(job.job_id, tenant_id=tenant) is is_theirs
    assert bool(await stores.jobs.cancel(job.job_id, "why", tenant_id=tenant)) is is_theirs
    view = await stores.jobs.get(job.job_id)
    assert view is not None
    assert view.label == ("cancelled" if is_theirs else "scheduled")


@pytest.mark.parametrize("tenant", [OTHER, "acme"])
async def test_dead_letters(stores: Stores, tenant: str) -> None:
    dead = discarded(await claimed(stores, await a_session(stores)))
    await stores.jobs.acknowledge([dead])
    is_theirs = tenant == "acme"
    assert await stores.dead_letters.redrive(dead.dead_letter_id, new_job(tenant_id=tenant)) is is_theirs
    closing = {"status": "abandoned", "resolution": "abandoned", "by": "ann", "reason": "old"}
    closed = await stores.dead_letters.resolve(dead.dead_letter_id, tenant_id=tenant, **closing)
    assert closed == ("cancelled" if is_theirs else None)
    entry = await stores.dead_letters.get(dead.dead_letter_id)
    assert entry is not None
    assert entry.status == ("abandoned" if is_theirs else "pending_review")
