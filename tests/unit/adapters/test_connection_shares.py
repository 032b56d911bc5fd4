"""One tenant does not get all connections of a process (R50)."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.adapters.http.connection_shares import ConnectionShares


async def test_new_tenant_gets_a_connection_beside_hanging_ones() -> None:
    shares = ConnectionShares(500, 300)
    for tenant in ("one", "two", "three"):
        while await shares.acquire(("host", tenant), 0.0):
            pass
    assert await shares.acquire(("host", "new"), 0.0)
    assert await shares.acquire(("another", "one"), 0.0)


@pytest.mark.parametrize(("most", "host"), [(500, "host"), (10, "another")])
async def test_a_newcomer_goes_before_a_tenant_that_has_more_calls_to_make(most: int, host: str) -> None:
    shares, busy, new = ConnectionShares(most, 10), ("host", "busy"), (host, "new")
    while await shares.acquire(busy, 0.0):
        pass
    for tenant in ("one", "two"):
        assert await shares.acquire(("host", tenant), 0.0)
    many = [asyncio.create_task(shares.acquire(busy, 60.0)) for _ in range(3)]
    await asyncio.sleep(0)
    newcomers = [asyncio.create_task(shares.acquire((host, name), 60.0)) for name in ("new", "newer")]
    await asyncio.sleep(0)
    for task in newcomers:
        shares.release(busy)
        assert await task
    assert not any(task.done() for task in many)
    assert shares._used_by_tenant[new] == 1
    for task in many:
        task.cancel()
    await asyncio.wait(many)
    assert (shares._waiters, shares._queues) == ({}, {})


async def test_a_tenant_alone_gets_four_fifths() -> None:
    shares, acquired = ConnectionShares(500, 300), 0
    while await shares.acquire(("host", "one"), 0.0):
        acquired += 1
    assert acquired == 240


async def test_a_released_connection_goes_to_a_waiter_and_a_cancelled_wait_holds_none() -> None:
    shares, key = ConnectionShares(1, 1), ("host", "one")
    assert await shares.acquire(key, 0.0)
    first, second = (asyncio.create_task(shares.acquire(key, 60.0)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait((first,))
    shares.release(key)
    assert await second
    shares.release(key)
    third = asyncio.create_task(shares.acquire(key, 60.0))
    assert await third
    fourth = asyncio.create_task(shares.acquire(key, 60.0))
    await asyncio.sleep(0)
    shares.release(key)
    fourth.cancel()  # it has been granted a moment ago
    await asyncio.wait((fourth,))
    assert await shares.acquire(key, 0.0)
    assert shares._waiters == {}
