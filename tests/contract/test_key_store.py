"""The port KeyStore: one current key a tenant, whoever is first, and compare-and-set for the rest."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from fairlead.adapters.postgres.data_keys import PostgresKeyStore
from fairlead.engine.ports import DataKey, KeyStore
from tests.support.keys import MemoryKeyStore


@pytest.fixture(params=["memory", "postgres"])
def keys(request: pytest.FixtureRequest) -> KeyStore:
    if request.param == "memory":
        return MemoryKeyStore()
    return PostgresKeyStore(request.getfixturevalue("database"))


def key_of(tenant: str = "acme", master_id: str = "m1", wrapped: bytes = b"wrapped") -> DataKey:
    return DataKey(uuid4(), tenant, master_id, wrapped)


async def test_a_tenant_without_a_key_has_none(keys: KeyStore) -> None:
    assert await keys.current("acme") is None
    assert await keys.get(uuid4()) is None
    assert await keys.samples() == []


async def test_of_many_that_mint_at_once_one_wins(keys: KeyStore) -> None:
    offered = [key_of() for _ in range(20)]
    adopted = await asyncio.gather(*(keys.adopt(key) for key in offered))
    assert len({key.key_id for key in adopted}) == 1
    assert adopted[0] in offered
    assert await keys.current("acme") == adopted[0]
    assert [key for key in offered if await keys.get(key.key_id)] == [adopted[0]]


async def test_tenants_do_not_share(keys: KeyStore) -> None:
    names = ["a", "A", "a ", "ä", "a:b", "x" * 200]
    keys_by_tenant = {tenant: await keys.adopt(key_of(tenant)) for tenant in names}
    assert len({key.key_id for key in keys_by_tenant.values()}) == len(names)
    for tenant, key in keys_by_tenant.items():
        assert await keys.current(tenant) == key


async def test_a_key_is_succeeded_once(keys: KeyStore) -> None:
    old = await keys.adopt(key_of())
    heirs = [key_of(master_id="m2") for _ in range(10)]
    done = await asyncio.gather(*(keys.succeed(old, heir) for heir in heirs))
    assert done.count(True) == 1
    heir = heirs[done.index(True)]
    assert await keys.current("acme") == heir
    assert await keys.get(old.key_id) == replace(old, current=False)
    assert not await keys.succeed(old, key_of())
    assert not await keys.succeed(key_of(), key_of())


async def test_rewrapping_is_by_compare_and_set(keys: KeyStore) -> None:
    old = await keys.adopt(key_of())
    assert await keys.rewrap(old, replace(old, master_id="m2", wrapped=b"by m2"))
    assert not await keys.rewrap(old, replace(old, master_id="m3", wrapped=b"by m3"))
    assert await keys.get(old.key_id) == replace(old, master_id="m2", wrapped=b"by m2")


async def test_foreign_keys_come_in_pages(keys: KeyStore) -> None:
    mine = await keys.adopt(key_of("mine", "m2"))
    others = [await keys.adopt(key_of(f"tenant-{number}")) for number in range(7)]
    assert await keys.succeed(others[0], key_of("tenant-0", "m2"))
    page_keys: list[DataKey] = []
    while page := await keys.foreign(
        "m2", current_only=False, cursor=page_keys[-1].key_id if page_keys else None, limit=3
    ):
        assert len(page) <= 3
        page_keys += page
    assert {key.key_id for key in page_keys} == {key.key_id for key in others}
    assert page_keys == sorted(page_keys, key=lambda key: key.key_id)
    current = await keys.foreign("m2", current_only=True, cursor=None, limit=100)
    assert {key.key_id for key in current} == {key.key_id for key in others[1:]}
    assert mine not in page_keys


async def test_samples_hold_one_key_of_each_master(keys: KeyStore) -> None:
    for number in range(6):
        await keys.adopt(key_of(f"tenant-{number}", f"m{number % 2}"))
    assert sorted(key.master_id for key in await keys.samples()) == ["m0", "m1"]
