"""S11 in the database itself: whoever can write rows gains no token by it, and nothing is sent for them.

Nor by changing where they are sent: endpoint, variant, client id and hosts are sealed with them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.postgres.database import Database
from fairlead.engine.ports import ConnectionKey, Settlement, SettleVerdict
from fairlead.engine.tokens.account import Accounts
from fairlead.engine.tokens.deps import payload_context
from fairlead.engine.tokens.grants import Grants
from fairlead.engine.tokens.reader import TokenReader
from fairlead.engine.tokens.sealed_endpoints import endpoint_digest_of
from fairlead.engine.tokens.sealed_records import decode_secrets, encode_secrets
from fairlead.errors import CredentialUnreadableError, MasterKeyMissingError
from fairlead.policy.providers.profile import Profile
from fairlead.testing.issuer import Issuer
from tests.security.conftest import PROVIDERS
from tests.security.figures import tell
from tests.support.altered import alter
from tests.support.refresher import FAST, Refresher, local_profile
from tests.support.rows import rows, run

FIRST, TWO = PROVIDERS
Tamper = Callable[[Database, dict[str, UUID]], Awaitable[None]]


async def swap(database: Database, ids: dict[str, UUID], first: str, other: str, columns: str) -> None:
    """Exchange *columns* of two rows, as one statement."""
    put = ", ".join(f"{name} = o.{name}" for name in columns.split())
    await run(
        database,
        f"UPDATE credential c SET {put} FROM credential o"
        " WHERE (c.connection_id, o.connection_id) IN (($1, $2), ($2, $1))",
        ids[first],
        ids[other],
    )


async def swapped_tenants(database: Database, ids: dict[str, UUID]) -> None:
    await swap(database, ids, "acme", "bolt", "sealed key_id")


async def swapped_with_generations(database: Database, ids: dict[str, UUID]) -> None:
    await swap(database, ids, "acme", "bolt", "sealed key_id generation")


async def swapped_ciphertext_alone(database: Database, ids: dict[str, UUID]) -> None:
    await swap(database, ids, "acme", "bolt", "sealed")


async def rolled_back(database: Database, ids: dict[str, UUID]) -> None:
    """The record of an earlier generation under the number of the present one."""
    await run(
        database, "UPDATE credential SET sealed = $2 WHERE connection_id = $1", ids["acme"], OLD[ids["acme"]]
    )


async def moved_to_another_provider(database: Database, ids: dict[str, UUID]) -> None:
    await run(database, "UPDATE connection SET provider = $2 WHERE connection_id = $1", ids["acme"], TWO)


async def given_to_another_tenant(database: Database, ids: dict[str, UUID]) -> None:
    await run(database, "UPDATE connection SET tenant_id = 'mallory' WHERE connection_id = $1", ids["acme"])
    await run(database, "UPDATE credential SET tenant_id = 'mallory' WHERE connection_id = $1", ids["acme"])


async def counted_up(database: Database, ids: dict[str, UUID]) -> None:
    await run(
        database, "UPDATE credential SET generation = generation + 1 WHERE connection_id = $1", ids["acme"]
    )


async def endpoint_moved(database: Database, ids: dict[str, UUID]) -> None:
    """To the other issuer: a parameter of the profile says at which path it is."""
    await describe(database, ids, "endpoint", json.dumps({"realm": TWO}), "jsonb")


async def variant_moved(database: Database, ids: dict[str, UUID]) -> None:
    await describe(database, ids, "variant", "elsewhere", "text")


async def client_moved(database: Database, ids: dict[str, UUID]) -> None:
    await describe(database, ids, "client_id", "another", "text")


async def hosts_added(database: Database, ids: dict[str, UUID]) -> None:
    await describe(database, ids, "settings", json.dumps({"hosts": ["evil.example"]}), "jsonb")


async def describe(database: Database, ids: dict[str, UUID], column: str, value: str, kind: str) -> None:
    change = f"UPDATE connection SET {column} = $2::{kind} WHERE connection_id = $1"
    await run(database, change, ids["acme"], value)


OLD: dict[UUID, bytes] = {}
TAMPERED: tuple[Tamper, ...] = (
    swapped_tenants, swapped_with_generations, swapped_ciphertext_alone, rolled_back, counted_up,
    endpoint_moved, variant_moved, client_moved, hosts_added,
)  # fmt: skip


@pytest.fixture
def profiles(honest: Issuer, other: Issuer) -> dict[str, Profile]:
    """Who connects says at which path the token endpoint is; another variant is at the other issuer."""
    paths = {"token": f"{honest.url}/{{realm}}/token", "authorize": f"{honest.url}/{{realm}}/authorize"}
    realm = {"description": "its realm", "kind": "path", "default": FIRST}
    return {
        FIRST: local_profile(
            honest.url,
            name=FIRST,
            endpoints={**paths, "params": {"realm": realm}},
            test={"url": f"{honest.url}/{{realm}}/token"},
            variants={"elsewhere": {"endpoints": {"token": f"{other.url}/{{realm}}/token"}}},
        ),
        TWO: local_profile(other.url, name=TWO),
    }


async def connected(fl: Refresher, honest: Issuer, database: Database) -> dict[str, UUID]:
    ids = {tenant: await fl.connect(honest, FIRST, tenant) for tenant in ("acme", "bolt")}
    for connection_id in ids.values():
        (row,) = await rows(database, "SELECT sealed FROM credential WHERE connection_id = $1", connection_id)
        OLD[connection_id] = row["sealed"]
    await fl.coordinator.refresh(ids["acme"], 1)
    return ids


@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda tamper: tamper.__name__)
async def test_S11_a_row_that_was_tampered_with_gives_nothing(
    fl: Refresher, honest: Issuer, other: Issuer, database: Database, tamper: Tamper
) -> None:
    ids = await connected(fl, honest, database)
    arrived_count = sum(1 for _ in honest.ledger().of("arrived"))
    await tamper(database, ids)
    fl.reader.forget(ConnectionKey("acme", FIRST))
    with pytest.raises((CredentialUnreadableError, MasterKeyMissingError)):
        await fl.reader.token(ConnectionKey("acme", FIRST))
    (row,) = await rows(database, "SELECT generation FROM credential WHERE connection_id = $1", ids["acme"])
    with pytest.raises((CredentialUnreadableError, MasterKeyMissingError)):
        await fl.coordinator.refresh(ids["acme"], row["generation"])
    assert sum(1 for _ in honest.ledger().of("arrived")) == arrived_count
    assert sum(1 for _ in other.ledger().of("arrived")) == 0


KEY = ConnectionKey("acme", FIRST)


async def sealed_endpoints(fl: Refresher) -> str | None:
    credential = await fl.deps.store.read(KEY)
    assert credential is not None
    stored = await fl.settler.open_secrets(credential)
    assert stored.endpoint_digest in (None, endpoint_digest_of(credential.connection))
    return stored.endpoint_digest


async def test_S11_every_lawful_change_is_sealed_again(fl: Refresher, honest: Issuer) -> None:
    connection_id = await fl.connect(honest, FIRST, "acme")
    sealed_rows = [await sealed_endpoints(fl)]
    await fl.connections.configure(KEY, {"hosts": ["files.example.com"]}, actor="ann")
    sealed_rows.append(await sealed_endpoints(fl))
    assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2
    await fl.connections.configure(KEY, {"observe": False}, actor="ann")
    assert await sealed_endpoints(fl) == sealed_rows[1], "of the settings hosts alone say where secrets go"
    await fl.connections.configure(KEY, {}, ["hosts"], actor="ann")
    assert await sealed_endpoints(fl) == sealed_rows[0]
    await fl.connect(honest, FIRST, "acme", endpoint={"realm": TWO}, client_id="own", other_account=True)
    sealed_rows.append(await sealed_endpoints(fl))
    assert len(set(sealed_rows)) == 3
    assert None not in sealed_rows


async def test_S11_settings_that_change_during_a_refresh_are_sealed_with_its_answer(
    fl: Refresher, honest: Issuer
) -> None:
    connection_id = await fl.connect(honest, FIRST, "acme")
    settle, attempt_count = fl.deps.store.settle, 0

    async def meanwhile(settlement: Settlement) -> SettleVerdict:
        nonlocal attempt_count
        attempt_count += 1
        if attempt_count == 1:
            await fl.connections.configure(KEY, {"hosts": ["files.example.com"]}, actor="ann")
        return await settle(settlement)

    alter(fl.deps.store, settle=meanwhile)
    assert (await fl.coordinator.refresh(connection_id, 1)).generation == 2
    assert attempt_count == 2
    assert await sealed_endpoints(fl)
    assert (await fl.coordinator.refresh(connection_id, 2)).generation == 3


async def test_S11_hosts_that_were_written_without_the_key_are_not_sealed_by_anybody(
    fl: Refresher, honest: Issuer, database: Database
) -> None:
    """Neither by other settings nor by a reconnect, which is the way out and keeps settings otherwise."""
    ids = await connected(fl, honest, database)
    await fl.connections.configure(KEY, {"observe": False}, actor="ann")
    added = json.dumps({"observe": False, "hosts": ["evil.example"]})
    await describe(database, ids, "settings", added, "jsonb")
    with pytest.raises(CredentialUnreadableError):
        await fl.connections.configure(KEY, {"hosts": ["evil.example", "files.example.com"]}, actor="ann")
    await fl.connections.configure(KEY, {"observe": True}, actor="ann")
    with pytest.raises(CredentialUnreadableError, match="sealed for"):
        await fl.reader.token(KEY)
    await fl.connect(honest, FIRST, "acme")
    assert await fl.reader.token(KEY)
    credential = await fl.deps.store.read(KEY)
    assert credential is not None
    assert credential.connection.settings == {"observe": True}


async def test_S11_hosts_that_were_written_without_the_key_can_be_put_back(
    fl: Refresher, honest: Issuer, database: Database
) -> None:
    """As a process of the version before does that sets them: nothing but what was sealed is good again."""
    ids = await connected(fl, honest, database)
    for hosts in (["files.example.com"], None):
        old, unset = ({"hosts": hosts}, ()) if hosts else ({}, ("hosts",))
        await fl.connections.configure(KEY, old, unset, actor="ann")
        credential_before = await fl.deps.store.read(KEY)
        assert credential_before is not None
        await hosts_added(database, ids)
        with pytest.raises(CredentialUnreadableError):
            await fl.connections.configure(KEY, {"hosts": ["mine.example.com"]}, actor="ann")
        await fl.connections.configure(KEY, old, unset, actor="ann")
        now = await fl.deps.store.read(KEY)
        assert now is not None
        assert (now.connection.settings, now.sealed) == (
            credential_before.connection.settings,
            credential_before.sealed,
        )
        refreshed = await fl.coordinator.refresh(ids["acme"], now.generation)
        assert refreshed.generation == now.generation + 1


async def test_S11_an_own_secret_does_not_follow_a_moved_endpoint_into_a_reconnect(
    fl: Refresher, honest: Issuer, database: Database
) -> None:
    connection_id = await fl.connect(honest, FIRST, "acme", client_secret=Secret("own"))
    await endpoint_moved(database, {"acme": connection_id})
    await fl.connect(honest, FIRST, "acme", endpoint={"realm": TWO}, other_account=True)
    credential = await fl.deps.store.read(KEY)
    assert credential is not None
    assert (await fl.settler.open_secrets(credential)).client_secret is None


async def test_S11_a_token_in_memory_is_not_tried_at_a_place_that_was_moved(
    fl: Refresher, honest: Issuer, database: Database
) -> None:
    ids = await connected(fl, honest, database)
    reader = TokenReader(fl.deps, fl.coordinator, fl.settler, 60.0)
    accounts = Accounts(fl.deps, Grants(fl.deps, FAST), fl.settler, reader, fl.connections)
    await reader.token(KEY)
    await endpoint_moved(database, ids)
    entry_count = len(honest.ledger().entries)
    with pytest.raises(CredentialUnreadableError):
        await accounts.test(KEY)
    assert len(honest.ledger().entries) == entry_count


async def test_S11_a_record_from_before_opens_and_is_bound_by_its_next_refresh(
    fl: Refresher, honest: Issuer, database: Database
) -> None:
    connection_id = await fl.connect(honest, FIRST, "acme")
    credential = await fl.deps.store.read(KEY)
    assert credential is not None
    context = payload_context(credential, 1)
    plain = encode_secrets(replace(await fl.settler.open_secrets(credential), endpoint_digest=None))
    record_before = json.dumps(
        {name: value for name, value in json.loads(plain).items() if name != "endpoint_digest"}
    )
    assert decode_secrets(record_before.encode()).endpoint_digest is None
    sealed = fl.deps.vault.seal(context, record_before.encode())
    put = "UPDATE credential SET sealed = $2, key_id = $3 WHERE connection_id = $1"
    await run(database, put, connection_id, sealed.blob, sealed.key_id)
    assert await fl.reader.token(KEY)
    assert await sealed_endpoints(fl) is None
    await fl.coordinator.refresh(connection_id, 1)
    assert await sealed_endpoints(fl)


@pytest.mark.parametrize(
    "tamper", [moved_to_another_provider, given_to_another_tenant], ids=lambda t: t.__name__
)
async def test_S11_a_connection_under_another_name_gives_nothing(
    fl: Refresher, honest: Issuer, other: Issuer, database: Database, tamper: Tamper
) -> None:
    """The token of one tenant is not told to another one, nor to another provider's endpoint."""
    ids = await connected(fl, honest, database)
    await tamper(database, ids)
    key = ConnectionKey("mallory", FIRST) if tamper is given_to_another_tenant else ConnectionKey("acme", TWO)
    with pytest.raises((CredentialUnreadableError, MasterKeyMissingError)):
        await fl.reader.token(key)
    with pytest.raises((CredentialUnreadableError, MasterKeyMissingError)):
        await fl.coordinator.refresh(ids["acme"], 2)
    assert sum(1 for _ in other.ledger().of("arrived")) == 0


async def test_S11_no_byte_of_a_row_may_change(fl: Refresher, honest: Issuer, database: Database) -> None:
    ids = await connected(fl, honest, database)
    (row,) = await rows(database, "SELECT sealed FROM credential WHERE connection_id = $1", ids["acme"])
    sealed: bytes = row["sealed"]
    attempt_count = opened = 0
    for position in range(len(sealed)):  # a bit of each; each bit of each: the vault's own contract
        flipped = bytearray(sealed)
        flipped[position] ^= 1 << (position % 8)
        await run(
            database,
            "UPDATE credential SET sealed = $2 WHERE connection_id = $1",
            ids["acme"],
            bytes(flipped),
        )
        fl.reader.forget(ConnectionKey("acme", FIRST))
        attempt_count += 1
        try:
            await fl.reader.token(ConnectionKey("acme", FIRST))
            opened += 1
        except (CredentialUnreadableError, MasterKeyMissingError):
            pass
    assert opened == 0
    await run(database, "UPDATE credential SET sealed = $2 WHERE connection_id = $1", ids["acme"], sealed)
    fl.reader.forget(ConnectionKey("acme", FIRST))
    assert await fl.reader.token(ConnectionKey("acme", FIRST))
    tell("S11", n=attempt_count, opened=opened)
