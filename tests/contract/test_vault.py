"""The port Vault: what was sealed opens in its place and nowhere else, and says exactly why not (T9, S11)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.adapters.postgres.data_keys import PostgresKeyStore
from fairlead.adapters.vault import MasterKey
from fairlead.engine.ports import DataKey, KeyStore, SealContext, Sealed
from fairlead.errors import (
    CredentialUnreadableError,
    DependencyUnavailableError,
    MasterKeyMismatchError,
    MasterKeyMissingError,
)
from fairlead.testing._kit.clock import ManualClock
from tests.support.keys import MASTER_1, MASTER_2, MemoryKeyStore, context_of, vault_over

PLAIN = b'{"refresh_token": "canary"}'


@pytest.fixture(params=["memory", "postgres"])
def keys(request: pytest.FixtureRequest) -> KeyStore:
    if request.param == "memory":
        return MemoryKeyStore()
    return PostgresKeyStore(request.getfixturevalue("database"))


class CountingKeyStore(MemoryKeyStore):
    """Counts how often it is asked."""

    asked = 0

    async def current(self, tenant: str) -> DataKey | None:
        self.asked += 1
        return await super().current(tenant)

    async def get(self, key_id: UUID) -> DataKey | None:
        self.asked += 1
        return await super().get(key_id)


# ---- sealing and opening


async def test_vault_opens_its_own_seal_and_that_of_another_process(keys: KeyStore) -> None:
    vault, other = vault_over(keys), vault_over(keys)
    await vault.preflight("acme")
    sealed = vault.seal(context_of(), PLAIN)
    assert PLAIN not in sealed.blob
    assert await vault.open(context_of(), sealed) == PLAIN
    assert await other.open(context_of(), sealed) == PLAIN
    assert vault.seal(context_of(), PLAIN).blob != sealed.blob  # a nonce of its own


async def test_processes_that_mint_at_once_share_the_winners_key(keys: KeyStore) -> None:
    vaults = [vault_over(keys) for _ in range(8)]
    await asyncio.gather(*(vault.preflight("acme") for vault in vaults))
    sealed = [vault.seal(context_of(), PLAIN) for vault in vaults]
    assert len({record.key_id for record in sealed}) == 1
    assert [await vaults[0].open(context_of(), record) for record in sealed] == [PLAIN] * 8


async def test_tenants_have_keys_of_their_own(keys: KeyStore) -> None:
    vault = vault_over(keys)
    for tenant in ("acme", "bolt"):
        await vault.preflight(tenant)
    first, other = (vault.seal(context_of(tenant=tenant), PLAIN) for tenant in ("acme", "bolt"))
    assert first.key_id != other.key_id


async def test_sealing_without_a_preflight_is_a_bug_of_the_caller() -> None:
    with pytest.raises(RuntimeError, match="preflight"):
        vault_over(MemoryKeyStore()).seal(context_of(), PLAIN)


# ---- S11: nothing opens in another place, another time, or altered

MOVED = [
    context_of(number=2),
    context_of(tenant="bolt"),
    context_of(generation=0),
    context_of(generation=2),
    replace(context_of(), provider="shopify"),
    replace(context_of(), field="answer"),
]


@pytest.mark.parametrize("context", MOVED, ids=["row", "tenant", "older", "newer", "provider", "field"])
async def test_a_record_that_was_moved_does_not_open(keys: KeyStore, context: SealContext) -> None:
    vault = vault_over(keys)
    for tenant in ("acme", "bolt"):
        await vault.preflight(tenant)
    sealed = vault.seal(context_of(), PLAIN)
    with pytest.raises(CredentialUnreadableError) as unreadable:
        await vault.open(context, sealed)
    assert unreadable.value.tenant == context.tenant
    assert unreadable.value.provider == context.provider
    assert await vault.open(context_of(), sealed) == PLAIN


async def test_two_swapped_rows_both_refuse(keys: KeyStore) -> None:
    vault = vault_over(keys)
    await vault.preflight("acme")
    first, second = (vault.seal(context_of(number), f"token {number}".encode()) for number in (1, 2))
    for context, sealed in ((context_of(1), second), (context_of(2), first)):
        with pytest.raises(CredentialUnreadableError):
            await vault.open(context, sealed)


async def test_no_flipped_bit_opens() -> None:
    vault = vault_over(MemoryKeyStore())
    await vault.preflight("acme")
    sealed = vault.seal(context_of(), b"short")
    for position in range(len(sealed.blob)):
        for bit in range(8):
            altered = bytearray(sealed.blob)
            altered[position] ^= 1 << bit
            with pytest.raises(CredentialUnreadableError):
                await vault.open(context_of(), Sealed(sealed.key_id, bytes(altered)))


async def test_no_cut_or_lengthened_record_opens() -> None:
    vault = vault_over(MemoryKeyStore())
    await vault.preflight("acme")
    sealed = vault.seal(context_of(), b"short")
    for blob in [sealed.blob[:length] for length in range(len(sealed.blob))] + [sealed.blob + b"\0"]:
        with pytest.raises(CredentialUnreadableError):
            await vault.open(context_of(), Sealed(sealed.key_id, blob))


CONTEXTS = st.builds(
    SealContext,
    tenant=st.text(max_size=8),
    connection_id=st.uuids(),
    provider=st.text(max_size=8),
    field=st.text(max_size=8),
    generation=st.integers(0, 2**63 - 1),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(context=CONTEXTS, other=CONTEXTS, plain=st.binary(max_size=100))
def test_only_the_very_same_context_opens(context: SealContext, other: SealContext, plain: bytes) -> None:
    async def check() -> None:
        vault = vault_over(MemoryKeyStore())
        await vault.preflight(context.tenant)
        sealed = vault.seal(context, plain)
        assert await vault.open(context, sealed) == plain
        moved = replace(context, provider=context.provider + other.field, field=other.field)
        if moved != context:
            with pytest.raises(CredentialUnreadableError):
                await vault.open(moved, sealed)

    asyncio.run(check())


# ---- the three ways a key can be wrong


async def test_another_master_key_is_missing_the_right_one(keys: KeyStore) -> None:
    vault = vault_over(keys)
    await vault.preflight("acme")
    sealed = vault.seal(context_of(), PLAIN)
    stranger = vault_over(keys, MASTER_2)
    for refused in (stranger.open(context_of(), sealed), stranger.preflight("acme"), stranger.check()):
        with pytest.raises(MasterKeyMissingError) as missing:
            await refused
        assert MASTER_1.master_id in missing.value.message
        assert missing.value.tenant == "acme"
        assert "put that key behind the newest one" in missing.value.hint
    assert await vault_over(keys, MASTER_2, MASTER_1).open(context_of(), sealed) == PLAIN


async def test_a_wrong_key_under_the_right_name_is_wrong(keys: KeyStore) -> None:
    vault = vault_over(keys, MasterKey(bytes(range(32)), "2026"))
    await vault.preflight("acme")
    sealed = vault.seal(context_of(), PLAIN)
    stranger = vault_over(keys, MasterKey(bytes(range(50, 82)), "2026"))
    for refused in (stranger.open(context_of(), sealed), stranger.preflight("acme"), stranger.check()):
        with pytest.raises(MasterKeyMismatchError):
            await refused
    await vault.check()
    assert await vault_over(keys, MasterKey(bytes(range(32)), "2026")).open(context_of(), sealed) == PLAIN


async def test_a_data_key_that_was_altered_or_moved_is_unreadable() -> None:
    keys = MemoryKeyStore()
    vault = vault_over(keys)
    for tenant in ("acme", "bolt"):
        await vault.preflight(tenant)
    sealed = vault.seal(context_of(), PLAIN)
    mine, other = keys.keys[sealed.key_id], await keys.current("bolt")
    assert other is not None
    flipped = bytes([mine.wrapped[0], mine.wrapped[1] ^ 1]) + mine.wrapped[2:]
    for wrapped in (flipped, other.wrapped, b"", mine.wrapped[:-1], b"\x02" + mine.wrapped[1:]):
        keys.keys[sealed.key_id] = replace(mine, wrapped=wrapped)
        with pytest.raises(CredentialUnreadableError, match="data_key"):
            await vault_over(keys).open(context_of(), sealed)
    keys.keys[sealed.key_id] = mine
    assert await vault_over(keys).open(context_of(), sealed) == PLAIN


async def test_a_data_key_that_is_gone_is_missing(keys: KeyStore) -> None:
    other = vault_over(MemoryKeyStore())
    await other.preflight("acme")
    with pytest.raises(MasterKeyMissingError, match="data_key"):
        await vault_over(keys).open(context_of(), other.seal(context_of(), PLAIN))


async def test_no_failure_changes_a_key(keys: KeyStore) -> None:
    vault = vault_over(keys)
    await vault.preflight("acme")
    key_before = await keys.current("acme")
    stranger = vault_over(keys, MASTER_2)
    with pytest.raises(MasterKeyMissingError):
        await stranger.preflight("acme")
    assert await keys.current("acme") == key_before
    assert await keys.foreign("nobody", current_only=False, cursor=None, limit=10) == [key_before]


# ---- keys in memory


async def test_a_key_is_asked_for_once_and_looked_up_again_later() -> None:
    keys, clock = CountingKeyStore(), ManualClock()
    vault = vault_over(keys, clock=clock, recheck_s=300.0)
    await vault.preflight("acme")
    minted = keys.asked
    for _ in range(10):
        await vault.preflight("acme")
        assert await vault.open(context_of(), vault.seal(context_of(), PLAIN)) == PLAIN
    assert keys.asked == minted
    await clock.advance(301.0)
    await vault.preflight("acme")
    assert keys.asked == minted + 1


async def test_a_key_rotated_elsewhere_is_followed_within_the_recheck() -> None:
    keys, clock = MemoryKeyStore(), ManualClock()
    vault, rotator = vault_over(keys, clock=clock, recheck_s=300.0), vault_over(keys)
    await vault.preflight("acme")
    old = await keys.current("acme")
    assert old is not None
    sealed_before = vault.seal(context_of(), PLAIN)
    assert await rotator.renew(old)
    await vault.preflight("acme")
    assert vault.seal(context_of(), PLAIN).key_id == old.key_id
    await clock.advance(301.0)
    await vault.preflight("acme")
    assert vault.seal(context_of(), PLAIN).key_id != old.key_id
    assert await vault.open(context_of(), sealed_before) == PLAIN


async def test_the_cache_is_bounded_but_keeps_what_is_held() -> None:
    keys, clock = CountingKeyStore(), ManualClock()
    vault = vault_over(keys, clock=clock, max_keys=10)
    tenants = [f"tenant-{number}" for number in range(30)]
    in_flight = [await vault.preflight(tenant) for tenant in tenants]
    await clock.advance(600.0)  # a process that was frozen goes on with its flights
    await vault.preflight("one more")
    for tenant in tenants:
        vault.seal(context_of(tenant=tenant), PLAIN)
    in_flight.clear()
    kept_count = 0
    for tenant in [*tenants, "one more"]:
        with suppress(RuntimeError):
            vault.seal(context_of(tenant=tenant), PLAIN)
            kept_count += 1
    assert kept_count == 10


async def test_a_key_renewed_here_does_not_take_the_old_one_from_what_is_in_flight() -> None:
    keys = MemoryKeyStore()
    vault = vault_over(keys)
    in_flight = await vault.preflight("acme")
    old = await keys.current("acme")
    assert old is not None
    assert await vault.renew(old)
    assert vault.seal(context_of(), PLAIN).key_id == old.key_id
    assert in_flight is await vault.preflight("acme")
    assert vault.seal(context_of(), PLAIN).key_id != old.key_id


async def test_opening_is_bounded_too() -> None:
    keys = CountingKeyStore()
    vault = vault_over(keys, max_keys=10)
    sealed = {}
    for number in range(30):
        tenant = f"tenant-{number}"
        await vault.preflight(tenant)
        sealed[tenant] = vault.seal(context_of(tenant=tenant), PLAIN)
    count_before = keys.asked
    for tenant, record in reversed(sealed.items()):
        assert await vault.open(context_of(tenant=tenant), record) == PLAIN
    assert keys.asked == count_before + 20


# ---- a KMS in place of a key of our own


class CountingKms:
    """A key in somebody else's hands."""

    master_id = "kms-key-7"

    def __init__(self) -> None:
        self._inner = MasterKey(bytes(range(60, 92)))
        self.calls: list[str] = []

    async def wrap(self, plain: bytes, context: bytes) -> bytes:
        self.calls.append("wrap")
        return await self._inner.wrap(plain, context)

    async def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        self.calls.append("unwrap")
        return await self._inner.unwrap(wrapped, context)


async def test_a_kms_is_asked_once_a_key(keys: KeyStore) -> None:
    kms = CountingKms()
    vault = vault_over(keys, kms, MASTER_1)  # type: ignore[arg-type]
    for _ in range(5):
        await vault.preflight("acme")
        assert await vault.open(context_of(), vault.seal(context_of(), PLAIN)) == PLAIN
    assert kms.calls == ["wrap", "unwrap"]
    current = await keys.current("acme")
    assert current is not None
    assert current.master_id == "kms-key-7"


async def test_a_key_that_is_not_32_bytes_is_wrong() -> None:
    class Broken(CountingKms):
        async def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
            return b"short"

    with pytest.raises(MasterKeyMismatchError):
        await vault_over(MemoryKeyStore(), Broken()).preflight("acme")  # type: ignore[arg-type]


async def test_a_kms_that_is_away_is_told_without_its_words() -> None:
    class Away(CountingKms):
        async def wrap(self, plain: bytes, context: bytes) -> bytes:
            raise ConnectionError("https://kms.example/?token=canary")

    with pytest.raises(DependencyUnavailableError, match="kms-key-7") as away:
        await vault_over(MemoryKeyStore(), Away()).preflight("acme")  # type: ignore[arg-type]
    assert "canary" not in str(away.value)


async def test_rewrapping_leaves_records_as_they_are(keys: KeyStore) -> None:
    vault = vault_over(keys)
    await vault.preflight("acme")
    sealed = vault.seal(context_of(), PLAIN)
    old = await keys.get(sealed.key_id)
    assert old is not None
    both = vault_over(keys, MASTER_2, MASTER_1)
    assert await both.rewrap(old)
    assert not await both.rewrap(old)
    assert await vault_over(keys, MASTER_2).open(context_of(), sealed) == PLAIN
    with pytest.raises(MasterKeyMissingError):
        await vault_over(keys, MASTER_1).open(context_of(), sealed)


async def test_a_kms_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.adapters.vault.master.KMS_S", 0.01)

    class Silent(MasterKey):
        async def wrap(self, plain: bytes, context: bytes) -> bytes:
            await asyncio.Event().wait()
            raise AssertionError

    with pytest.raises(DependencyUnavailableError, match="TimeoutError"):
        await vault_over(MemoryKeyStore(), Silent(bytes(range(32)))).preflight("acme")
