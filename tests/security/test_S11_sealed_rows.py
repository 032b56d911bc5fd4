"""S11 in the database itself: whoever can write rows gains no token by it, and nothing is sent for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from fairlead.adapters.postgres.pool import Database
from fairlead.engine.ports import ConnectionKey
from fairlead.errors import CredentialUnreadable, KeyMissing
from fairlead.testing.issuer import Issuer
from tests.security.conftest import PROVIDERS
from tests.security.figures import tell
from tests.support.refresher import Refresher
from tests.support.rows import rows, run

ONE, TWO = PROVIDERS
Tamper = Callable[[Database, dict[str, UUID]], Awaitable[None]]


async def swap(database: Database, ids: dict[str, UUID], one: str, other: str, columns: str) -> None:
    """Exchange *columns* of two rows, as one statement."""
    put = ", ".join(f"{name} = o.{name}" for name in columns.split())
    await run(
        database,
        f"UPDATE credential c SET {put} FROM credential o"
        " WHERE (c.connection_id, o.connection_id) IN (($1, $2), ($2, $1))",
        ids[one],
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


OLD: dict[UUID, bytes] = {}
TAMPERED: tuple[Tamper, ...] = (
    swapped_tenants, swapped_with_generations, swapped_ciphertext_alone, rolled_back, counted_up,
)  # fmt: skip


async def connected(fl: Refresher, honest: Issuer, database: Database) -> dict[str, UUID]:
    ids = {tenant: await fl.connect(honest, ONE, tenant) for tenant in ("acme", "bolt")}
    for connection_id in ids.values():
        (row,) = await rows(database, "SELECT sealed FROM credential WHERE connection_id = $1", connection_id)
        OLD[connection_id] = row["sealed"]
    await fl.coordinator.refresh(ids["acme"], 1)
    return ids


@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda tamper: tamper.__name__)
async def test_S11_a_row_that_was_tampered_with_gives_nothing(
    fl: Refresher, honest: Issuer, database: Database, tamper: Tamper
) -> None:
    ids = await connected(fl, honest, database)
    asked = sum(1 for _ in honest.ledger().of("arrived"))
    await tamper(database, ids)
    fl.reader.forget(ConnectionKey("acme", ONE))
    with pytest.raises((CredentialUnreadable, KeyMissing)):
        await fl.reader.token(ConnectionKey("acme", ONE))
    (row,) = await rows(database, "SELECT generation FROM credential WHERE connection_id = $1", ids["acme"])
    with pytest.raises((CredentialUnreadable, KeyMissing)):
        await fl.coordinator.refresh(ids["acme"], row["generation"])
    assert sum(1 for _ in honest.ledger().of("arrived")) == asked


@pytest.mark.parametrize(
    "tamper", [moved_to_another_provider, given_to_another_tenant], ids=lambda t: t.__name__
)
async def test_S11_a_connection_under_another_name_gives_nothing(
    fl: Refresher, honest: Issuer, other: Issuer, database: Database, tamper: Tamper
) -> None:
    """The token of one tenant is not told to another one, nor to another provider's endpoint."""
    ids = await connected(fl, honest, database)
    await tamper(database, ids)
    key = ConnectionKey("mallory", ONE) if tamper is given_to_another_tenant else ConnectionKey("acme", TWO)
    with pytest.raises((CredentialUnreadable, KeyMissing)):
        await fl.reader.token(key)
    with pytest.raises((CredentialUnreadable, KeyMissing)):
        await fl.coordinator.refresh(ids["acme"], 2)
    assert sum(1 for _ in other.ledger().of("arrived")) == 0


async def test_S11_no_byte_of_a_row_may_change(fl: Refresher, honest: Issuer, database: Database) -> None:
    ids = await connected(fl, honest, database)
    (row,) = await rows(database, "SELECT sealed FROM credential WHERE connection_id = $1", ids["acme"])
    sealed: bytes = row["sealed"]
    tried = opened = 0
    for place in range(len(sealed)):  # a bit of each; each bit of each: the vault's own contract
        flipped = bytearray(sealed)
        flipped[place] ^= 1 << (place % 8)
        await run(
            database,
            "UPDATE credential SET sealed = $2 WHERE connection_id = $1",
            ids["acme"],
            bytes(flipped),
        )
        fl.reader.forget(ConnectionKey("acme", ONE))
        tried += 1
        try:
            await fl.reader.token(ConnectionKey("acme", ONE))
            opened += 1
        except (CredentialUnreadable, KeyMissing):
            pass
    assert opened == 0
    await run(database, "UPDATE credential SET sealed = $2 WHERE connection_id = $1", ids["acme"], sealed)
    fl.reader.forget(ConnectionKey("acme", ONE))
    assert await fl.reader.token(ConnectionKey("acme", ONE))
    tell("S11", n=tried, opened=opened)
