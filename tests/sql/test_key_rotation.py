"""Key rotation on real PostgreSQL while readers and writers run, killed in mid-way and resumed (S12, TT7)."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from fairlead.adapters.local.system import SystemClock
from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.data_keys import PostgresKeyStore, sealed_tables
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.vault import MasterKey, TenantVault
from fairlead.engine.ports import (
    ConnectionKey,
    Lifetime,
    NewCredential,
    SealContext,
    Sealed,
    SealedRecords,
    StoredRecord,
)
from fairlead.engine.tokens.reencrypt import Reencryptor, RotationProgress
from fairlead.errors import MasterKeyMissingError
from tests.security.figures import tell
from tests.support.keys import MASTER_1, MASTER_2, vault_over
from tests.support.raw_connections import raw_connection_of
from tests.support.rows import rows, run

QUICK = {"recheck_s": 0.15, "promise_s": 0.1}
HOUR = Lifetime(expires_in_s=3600.0, urgent_in_s=3000.0, critical_in_s=3500.0, due_in_s=2900.0)


def quick_vault(database: Database, *masters: MasterKey) -> TenantVault:
    return vault_over(PostgresKeyStore(database), *masters, clock=SystemClock(), **QUICK)


def resealer(database: Database, vault: TenantVault, batch: int = 50) -> Reencryptor:
    return Reencryptor(
        vault=vault,
        rotator=vault,
        keys=PostgresKeyStore(database),
        tables=sealed_tables(database),
        clock=SystemClock(),
        batch=batch,
    )


def seal_context(connection_id: UUID, tenant: str, generation: int, field: str = "credential") -> SealContext:
    return SealContext(tenant, connection_id, "mercadolibre", field, generation)


def secret_of(connection_id: UUID, generation: int) -> bytes:
    return f"{connection_id} generation {generation}".encode()


async def sealed_new(vault: TenantVault, connection_id: UUID, tenant: str, generation: int) -> NewCredential:
    await vault.preflight(tenant)
    context = seal_context(connection_id, tenant, generation)
    return NewCredential(
        connection_id=connection_id,
        key=ConnectionKey(tenant, "mercadolibre", f"b{connection_id.hex[:8]}"),
        variant=None,
        account_id=None,
        client_id="app",
        endpoint={},
        settings={},
        sealed=vault.seal(context, secret_of(connection_id, generation)),
        generation=generation,
        refreshable=True,
        lifetime=HOUR,
        actor="test",
        audit_id=uuid4(),
    )


async def populate(database: Database, vault: TenantVault, connections: int, tenants: int) -> list[UUID]:
    """Connections of so many tenants."""
    store = PostgresCredentialStore(database)
    ids = [uuid4() for _ in range(connections)]
    for number, connection_id in enumerate(ids):
        tenant = f"tenant-{number % tenants}"
        assert await store.create(await sealed_new(vault, connection_id, tenant, 1))
    await store.close()
    return ids


async def masters_of_records(database: Database) -> set[tuple[str, bool]]:
    """(master, key is current) of every sealed record."""
    rows_found = await rows(
        database,
        "SELECT DISTINCT master_id, current FROM data_key WHERE key_id IN (SELECT key_id FROM credential)",
    )
    return {(row["master_id"], row["current"]) for row in rows_found}


async def test_a_full_rotation_leaves_nothing_to_the_old_key(database: Database) -> None:
    await populate(database, quick_vault(database), connections=120, tenants=7)
    progress: list[RotationProgress] = []
    report = await resealer(database, quick_vault(database, MASTER_2, MASTER_1)).rotate(
        progress=progress.append
    )
    assert (report.renewed, report.resealed, report.rewrapped, report.remaining) == (7, 120, 7, 0)
    assert await masters_of_records(database) == {(MASTER_2.master_id, True)}
    assert [step.phase for step in progress] == sorted(
        [step.phase for step in progress], key=["renew", "reseal", "rewrap"].index
    )
    assert max(step.done for step in progress if step.phase == "reseal") == 120
    report_alone = await resealer(database, quick_vault(database, MASTER_2)).verify()
    assert (report_alone.checked, report_alone.readable, dict(report_alone.problems)) == (120, 120, {})
    again = await resealer(database, quick_vault(database, MASTER_2)).rotate()
    assert (again.renewed, again.resealed, again.rewrapped) == (0, 0, 0)


async def test_rewrapping_alone_changes_no_record(database: Database) -> None:
    await populate(database, quick_vault(database), connections=20, tenants=3)
    rows_before = await rows(database, "SELECT connection_id, sealed FROM credential ORDER BY 1")
    report = await resealer(database, quick_vault(database, MASTER_2, MASTER_1)).rotate(rewrap_only=True)
    assert (report.renewed, report.resealed, report.rewrapped) == (0, 0, 3)
    assert await rows(database, "SELECT connection_id, sealed FROM credential ORDER BY 1") == rows_before
    report_alone = await resealer(database, quick_vault(database, MASTER_2)).verify()
    assert report_alone.readable == report_alone.checked == 20


async def test_without_the_old_key_it_stops_before_the_first_change(database: Database) -> None:
    await populate(database, quick_vault(database), connections=5, tenants=2)
    keys_before = await rows(database, "SELECT * FROM data_key ORDER BY key_id")
    with pytest.raises(MasterKeyMissingError):
        await resealer(database, quick_vault(database, MASTER_2)).rotate()
    assert await rows(database, "SELECT * FROM data_key ORDER BY key_id") == keys_before
    report = await resealer(database, quick_vault(database, MASTER_2)).verify()
    assert (report.checked, report.readable, dict(report.problems)) == (5, 0, {"master_key_missing": 5})
    assert report.examples
    assert "hint:" in report.examples[0]


async def test_row_that_cannot_be_opened_is_counted_and_left_as_it_is(database: Database) -> None:
    ids = await populate(database, quick_vault(database), connections=12, tenants=2)
    await run(
        database,
        "UPDATE credential SET sealed = set_byte(sealed, 40, get_byte(sealed, 40) # 1)"
        " WHERE connection_id = $1",
        ids[3],
    )
    await run(  # moved from another row
        database,
        "UPDATE credential c SET sealed = o.sealed FROM credential o WHERE c.connection_id = $1"
        " AND o.connection_id = $2",
        ids[4],
        ids[6],
    )
    damaged = [ids[3], ids[4]]
    rows_before = await rows(
        database, "SELECT sealed FROM credential WHERE connection_id = ANY($1) ORDER BY 1", damaged
    )
    report = await resealer(database, quick_vault(database, MASTER_2, MASTER_1), batch=3).rotate()
    assert (report.resealed, report.remaining) == (10, 2)
    rows_after = await rows(
        database, "SELECT sealed FROM credential WHERE connection_id = ANY($1) ORDER BY 1", damaged
    )
    assert rows_after == rows_before
    verify_report = await resealer(database, quick_vault(database, MASTER_2)).verify()
    assert dict(verify_report.problems) == {"credential_unreadable": 2}


async def test_a_row_under_a_writers_hands_is_not_waited_for(database: Database) -> None:
    ids = await populate(database, quick_vault(database), connections=3, tenants=1)
    table = sealed_tables(database)["credential"]
    page = await table.page(retired_only=False, cursor=None, limit=10)
    new = Sealed(page[0].sealed.key_id, b"new")
    async with database.transaction() as transaction:
        await raw_connection_of(transaction).fetch(
            "SELECT FROM credential WHERE connection_id = $1 FOR UPDATE", page[0].record_id
        )
        replaced = await asyncio.wait_for(table.replace([(record, new) for record in page]), 2.0)
        assert replaced == 2
    assert await table.replace([(page[0], new)]) == 1
    assert await table.replace([(page[0], new)]) == 0  # by compare-and-set
    assert len(ids) == 3


class Load:
    """Readers and writers that never rest; counts what went wrong."""

    def __init__(self, database: Database, ids: list[UUID], vaults: list[TenantVault]) -> None:
        self._store = PostgresCredentialStore(database)
        self._ids = ids
        self._vaults = vaults
        self._running = True
        self.reads = self.writes = 0

    async def run(self) -> None:
        tasks = [self._write(vault, number) for number, vault in enumerate(self._vaults)]
        await asyncio.gather(
            *tasks, *(self._read(vault, number) for number, vault in enumerate(self._vaults))
        )
        await self._store.close()

    def stop(self) -> None:
        self._running = False

    async def _opened(self, vault: TenantVault, connection_id: UUID) -> tuple[str, int]:
        credential = await self._store.read_id(connection_id)
        assert credential is not None
        tenant = credential.connection.key.tenant
        plain = await vault.open(
            seal_context(connection_id, tenant, credential.generation), credential.sealed
        )
        assert plain == secret_of(connection_id, credential.generation)
        return tenant, credential.generation

    async def _read(self, vault: TenantVault, seed: int) -> None:
        chance = random.Random(seed)
        while self._running:
            await self._opened(vault, chance.choice(self._ids))
            self.reads += 1

    async def _write(self, vault: TenantVault, seed: int) -> None:
        chance = random.Random(100 + seed)
        while self._running:
            connection_id = chance.choice(self._ids)
            tenant, generation = await self._opened(vault, connection_id)
            new = await sealed_new(vault, connection_id, tenant, generation + 1)
            self.writes += await self._store.replace(new)


ROTATOR = """
import asyncio, os, signal, sys
sys.path.insert(0, sys.argv[1])
from fairlead.adapters.postgres.database import Database
from tests.sql.test_key_rotation import MASTER_1, MASTER_2, quick_vault, resealer
from tests.support.databases import settings_of

async def main():
    database = await Database.open(settings_of(sys.argv[2]))
    vault = quick_vault(database, MASTER_2, MASTER_1)
    left = int(sys.argv[3])

    def progress(step):
        nonlocal left
        print(step.phase, flush=True)
        left -= 1
        if left == 0:  # a moment later, in the middle of whatever comes next
            asyncio.get_running_loop().call_later(0.002, os.kill, os.getpid(), signal.SIGKILL)

    await resealer(database, vault, batch=5).rotate(progress=progress)

asyncio.run(main())
"""


def killed_rotation(url: str, steps: int) -> list[str]:
    """Let a rotation in a process of its own die by SIGKILL after so many steps; what it told."""
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", ROTATOR, root, url, str(steps)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    return [line.strip() for line in lines if line.endswith("\n")]


@pytest.mark.slow
async def test_s12_rotation_under_load_killed_and_resumed(database: Database) -> None:
    ids = await populate(database, quick_vault(database), connections=300, tenants=20)
    # The last hundred are nobody's but the rotation's: writers would else re-seal them before it is resumed.
    vaults = [quick_vault(database, *pair) for pair in ((MASTER_1, MASTER_2), (MASTER_2, MASTER_1))]
    load = Load(database, ids[:200], vaults)
    running = asyncio.create_task(load.run())
    phases = set()
    for steps in (2, 12):  # within the renewing of keys, and within the re-sealing
        lines = await asyncio.to_thread(killed_rotation, database.settings.dsn, steps)
        phases.update(lines)
        assert "rewrap" not in lines
    assert phases == {"renew", "reseal"}
    report = await resealer(database, quick_vault(database, MASTER_2, MASTER_1)).rotate()
    load.stop()
    await running  # raises what a reader or writer met
    assert report.resealed > 0
    assert report.remaining == 0
    assert await masters_of_records(database) == {(MASTER_2.master_id, True)}
    assert load.reads > 100
    assert load.writes > 50
    verify_report = await resealer(database, quick_vault(database, MASTER_2)).verify()
    assert verify_report.readable == verify_report.checked == 300
    # A read that failed was raised by `await running`.
    tell("S12", n=load.reads, writes=load.writes, kills=2, failed_reads=0, under_old_key=report.remaining)


async def test_pages_follow_one_another(database: Database) -> None:
    await populate(database, quick_vault(database), connections=25, tenants=3)
    for table in sealed_tables(database).values():
        all_records = await all_of(table, 1000)
        assert all_records == await all_of(table, 4)
        assert [record.record_id for record in all_records] == sorted(
            record.record_id for record in all_records
        )
        assert await table.page(retired_only=True, cursor=None, limit=10) == []
        assert {record.context.provider for record in all_records} == {"mercadolibre"}
        first = all_records[0]
        assert (
            await table.replace([(replace(first, sealed=Sealed(first.sealed.key_id, b"x")), first.sealed)])
            == 0
        )


async def all_of(table: SealedRecords, limit: int) -> list[StoredRecord]:
    records: list[StoredRecord] = []
    while page := await table.page(
        retired_only=False, cursor=records[-1].record_id if records else None, limit=limit
    ):
        records += page
    return records
