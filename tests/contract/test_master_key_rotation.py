"""A master key is rotated while several processes work: none seals what another live one cannot open."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import pytest

from fairlead.adapters.vault import MasterKey, TenantVault
from fairlead.adapters.vault.vault import ELSEWHERE_GONE_S
from fairlead.engine.ports import DataKey, KeyHolder, SealedRecords
from fairlead.engine.tokens.reencrypt import KEY_REFRESH_S, Reencryptor
from fairlead.errors import InvalidConfigError, MasterKeyElsewhereError, MasterKeyMissingError
from fairlead.policy.jobs.job import Retry, Snooze, outcome_of_exception
from fairlead.testing._kit.clock import ManualClock
from tests.contract.stores import LEASE_S, Stores, identity
from tests.support.engine import IDS
from tests.support.keys import MASTER_1, MASTER_2, MemoryKeyStore, context_of, vault_over

PLAIN = b'{"refresh_token": "canary"}'
OLD, NEW = MASTER_1.master_id, MASTER_2.master_id


class Fleet:
    """Processes with their master keys over one key store."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.keys = MemoryKeyStore()
        self.clock = ManualClock()

    async def process(self, *masters: MasterKey, pid: int) -> tuple[UUID, TenantVault]:
        session_id = IDS.uuid7()
        ids = [master.master_id for master in masters]
        await self.stores.sessions.open(session_id, identity(pid), LEASE_S, "1.0", ids)
        holders = self.stores.sessions.key_holders
        return session_id, vault_over(self.keys, *masters, clock=self.clock, holders=holders)

    def resealer(self, vault: TenantVault, session_id: UUID) -> Reencryptor:
        tables: dict[str, SealedRecords] = {}
        sessions = self.stores.sessions
        return Reencryptor(
            vault=vault,
            rotator=vault,
            keys=self.keys,
            tables=tables,
            clock=self.clock,
            sessions=sessions,
            own_session=lambda: session_id,
        )

    def refuse_to_wait(self) -> None:
        """Make any wait for other processes fail the test."""

        async def sleep(delay_s: float) -> None:
            raise AssertionError(f"a wait of {delay_s} s")

        self.clock.sleep = sleep  # type: ignore[method-assign]

    async def holders(self) -> list[KeyHolder]:
        return await self.stores.sessions.key_holders()


@pytest.fixture
def fleet(stores: Stores) -> Fleet:
    return Fleet(stores)


async def test_a_job_survives_a_rotation_in_which_processes_restart_one_by_one(fleet: Fleet) -> None:
    """The process that has the new key seals under the old one until the other has the new one, too."""
    _, old_vault = await fleet.process(MASTER_1, pid=1)
    _, new_vault = await fleet.process(MASTER_2, MASTER_1, pid=2)
    _pinned = await new_vault.preflight("acme")
    assert await old_vault.open(context_of(), new_vault.seal(context_of(), PLAIN)) == PLAIN


async def test_the_newest_key_seals_once_every_live_process_holds_it(fleet: Fleet) -> None:
    first, _ = await fleet.process(MASTER_1, pid=1)
    _, new_vault = await fleet.process(MASTER_2, MASTER_1, pid=2)
    assert await new_vault.sealing_master_id() == OLD
    await fleet.stores.sessions.close(first)
    assert await new_vault.sealing_master_id() == NEW
    await fleet.process(MASTER_1, pid=3)  # is killed
    await fleet.stores.pass_time(LEASE_S + 1)
    await fleet.process(MASTER_2, MASTER_1, pid=4)
    assert await new_vault.sealing_master_id() == NEW


async def test_a_process_without_the_key_hands_the_job_back_while_another_holds_it(fleet: Fleet) -> None:
    holder, sealing = await fleet.process(MASTER_2, MASTER_1, pid=1)
    _pinned = await sealing.preflight("acme")
    sealed = sealing.seal(context_of(), PLAIN)
    _, lacking = await fleet.process(MASTER_1, pid=2)
    with pytest.raises(MasterKeyElsewhereError, match=NEW) as elsewhere:
        await lacking.open(context_of(), sealed)
    assert elsewhere.value.tenant == "acme"
    waits = outcome_of_exception(elsewhere.value, draw=0.5)
    assert isinstance(waits, Snooze)
    assert waits.delay_s < 10
    await fleet.stores.sessions.close(holder)
    with pytest.raises(MasterKeyElsewhereError):
        await lacking.open(context_of(), sealed)  # the holder may be about to start again
    await fleet.stores.pass_time(ELSEWHERE_GONE_S + 1)
    with pytest.raises(MasterKeyMissingError) as missing:
        await lacking.open(context_of(), sealed)
    assert isinstance(outcome_of_exception(missing.value, draw=0.5), Retry)


async def test_a_rotation_does_not_begin_while_a_live_process_lacks_the_newest_key(fleet: Fleet) -> None:
    lacking, old_vault = await fleet.process(MASTER_1, pid=7)
    _pinned = await old_vault.preflight("acme")
    session_id, new_vault = await fleet.process(MASTER_2, MASTER_1, pid=2)
    fleet.refuse_to_wait()
    with pytest.raises(
        InvalidConfigError, match=rf"1 live processes lack the master key {NEW}: pid 7 on here"
    ):
        await fleet.resealer(new_vault, session_id).rotate()
    assert {key.master_id for key in fleet.keys.keys.values()} == {OLD}
    await fleet.stores.sessions.close(lacking)
    report = await fleet.resealer(new_vault, session_id).rotate()
    assert (report.renewed, report.rewrapped) == (1, 1)


async def test_a_rotation_ends_though_a_process_starts_meanwhile_without_the_newest_key(fleet: Fleet) -> None:
    old = await _minted(fleet, "acme")
    session_id, vault = await fleet.process(MASTER_2, MASTER_1, pid=2)
    resealer = fleet.resealer(vault, session_id)
    _, lacking = await fleet.process(MASTER_1, pid=7)

    async def checked_before() -> None:
        """The other process starts once it was looked for."""

    async def sleep(delay_s: float) -> None:
        await fleet.clock.advance(delay_s)

    new_keys, renew = list[DataKey](), vault.renew

    async def renew_few(key: DataKey) -> bool:
        new_keys.append(key)
        assert len(new_keys) < 9, "it has no end"
        return await renew(key)

    vault.renew = renew_few  # type: ignore[method-assign]
    resealer._check_holders = checked_before  # type: ignore[method-assign]
    fleet.clock.sleep = sleep  # type: ignore[method-assign]
    report = await resealer.rotate()
    assert (report.renewed, report.remaining) == (1, 0)
    assert {key.master_id for key in fleet.keys.keys.values()} == {NEW}
    _pinned = await vault.preflight("acme")
    sealed = vault.seal(context_of(), PLAIN)
    assert sealed.key_id != old
    with pytest.raises(MasterKeyElsewhereError):
        await lacking.open(context_of(), sealed)


async def test_a_rotation_does_not_wait_for_processes_that_are_gone(fleet: Fleet) -> None:
    gone_session_id, _ = await fleet.process(MASTER_2, MASTER_1, pid=1)
    await fleet.stores.sessions.close(gone_session_id)
    session_id, vault = await fleet.process(MASTER_2, MASTER_1, pid=2)
    fleet.refuse_to_wait()
    assert (await fleet.resealer(vault, session_id).rotate()).remaining == 0


async def test_a_rotation_ends_seconds_after_each_process_has_looked_up_the_data_keys(fleet: Fleet) -> None:
    other, other_vault = await fleet.process(MASTER_2, MASTER_1, pid=1)
    session_id, vault = await fleet.process(MASTER_2, MASTER_1, pid=2)
    old = await _minted(fleet, "acme")
    _in_flight = await other_vault.preflight("acme")
    rotating = partial(fleet.resealer(vault, session_id).rotate)
    waited: list[float] = []

    async def sleep(delay_s: float) -> None:
        waited.append(delay_s)
        await fleet.stores.pass_time(1.0)
        renewed = await fleet.stores.sessions.heartbeat(other)
        assert renewed is not None
        assert renewed.data_keys_renewed_at is not None
        await other_vault.refresh_keys()
        await fleet.clock.advance(delay_s)

    fleet.clock.sleep = sleep  # type: ignore[method-assign]
    await rotating()
    assert 0 < sum(waited) <= KEY_REFRESH_S + 2
    assert other_vault.seal(context_of(), PLAIN).key_id != old


async def test_an_older_process_that_does_not_say_its_keys_is_waited_for(fleet: Fleet) -> None:
    session_id, vault = await fleet.process(MASTER_2, MASTER_1, pid=2)
    await fleet.stores.sessions.open(IDS.uuid7(), identity(9), 1e6, "0.1")
    assert [holder.master_ids for holder in await fleet.holders()] == [(NEW, OLD), None]
    waited: list[float] = []

    async def sleep(delay_s: float) -> None:
        waited.append(delay_s)
        await fleet.clock.advance(delay_s)

    fleet.clock.sleep = sleep  # type: ignore[method-assign]
    await fleet.resealer(vault, session_id).rotate()
    assert sum(waited) == pytest.approx(vault.retired_writes_s)


async def test_a_session_is_behind_until_it_is_renewed_after_the_request(fleet: Fleet) -> None:
    session_id, _ = await fleet.process(MASTER_1, pid=1)
    await fleet.stores.pass_time(1.0)
    await fleet.stores.sessions.data_keys_renewed()
    assert _behind(await fleet.holders()) == [True]
    await fleet.stores.pass_time(1.0)
    renewed = await fleet.stores.sessions.heartbeat(session_id)
    assert renewed is not None
    assert renewed.data_keys_renewed_at is not None
    assert _behind(await fleet.holders()) == [False]


def _behind(holders: Sequence[KeyHolder]) -> list[bool]:
    return [holder.is_behind for holder in holders]


async def _minted(fleet: Fleet, tenant: str) -> UUID:
    """The data key of *tenant*, wrapped by the old master key."""
    vault = vault_over(fleet.keys, MASTER_1)
    _pinned = await vault.preflight(tenant)
    return vault.seal(context_of(tenant=tenant), PLAIN).key_id
