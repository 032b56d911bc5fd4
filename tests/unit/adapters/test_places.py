"""One tenant does not get all connections of a process (R50)."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.adapters.http.connection_shares import ConnectionShares


async def test_new_tenant_gets_a_connection_beside_hanging_ones() -> None:
    places = ConnectionShares(500, 300)
    for tenant in ("one", "two", "three"):
        while await places.take(("host", tenant), 0.0):
            pass
    assert await places.take(("host", "new"), 0.0)
    assert await places.take(("another", "one"), 0.0)


@pytest.mark.parametrize(("most", "host"), [(500, "host"), (10, "another")])
async def test_a_newcomer_goes_before_a_tenant_that_has_more_calls_to_make(most: int, host: str) -> None:
    places, busy, new = ConnectionShares(most, 10), ("host", "busy"), (host, "new")
    while await places.take(busy, 0.0):
        pass
    for tenant in ("one", "two"):
        assert await places.take(("host", tenant), 0.0)
    many = [asyncio.create_task(places.take(busy, 60.0)) for _ in range(3)]
    await asyncio.sleep(0)
    newcomers = [asyncio.create_task(places.take((host, name), 60.0)) for name in ("new", "newer")]
    await asyncio.sleep(0)
    for task in newcomers:
        places.give_back(busy)
        assert await task
    assert not any(task.done() for task in many)
    assert places._counts[new] == 1
    for task in many:
        task.cancel()
    await asyncio.wait(many)
    assert (places._waiting, places._lines) == ({}, {})


async def test_a_tenant_alone_gets_four_fifths() -> None:
    places, taken = ConnectionShares(500, 300), 0
    while await places.take(("host", "one"), 0.0):
        taken += 1
    assert taken == 240


async def test_a_place_that_comes_free_goes_to_who_waits_and_a_cancelled_wait_holds_none() -> None:
    places, place = ConnectionShares(1, 1), ("host", "one")
    assert await places.take(place, 0.0)
    first, second = (asyncio.create_task(places.take(place, 60.0)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait((first,))
    places.give_back(place)
    assert await second
    places.give_back(place)
    third = asyncio.create_task(places.take(place, 60.0))
    assert await third
    fourth = asyncio.create_task(places.take(place, 60.0))
    await asyncio.sleep(0)
    places.give_back(place)
    fourth.cancel()  # it was served a moment ago
    await asyncio.wait((fourth,))
    assert await places.take(place, 0.0)
    assert places._waiting == {}
