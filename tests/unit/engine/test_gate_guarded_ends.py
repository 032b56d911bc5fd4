"""Ends that nobody waits for, while the store goes away, is away, and comes back (G8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fairlead.engine.ports import Admitted, Lease, Release, Released, Renewal
from fairlead.policy.limits.limit import Domain, Plan, PoolLimit
from fairlead.testing._kit.clock import ManualClock
from tests.support.altered import alter
from tests.support.several import Process, Store

DOMAIN = Domain(("tenant", "acme"))


@pytest.fixture
def store() -> Store:
    return Store(ManualClock(start=1_800_000_000.0))


@pytest.fixture
def fleet(store: Store) -> list[Process]:
    return [Process(store, rank, 4) for rank in range(4)]


async def look(process: Process, times: int = 1) -> None:
    for _ in range(times):
        await process.gate.ping_redis()


async def test_an_end_that_the_store_does_not_hear_is_settled_here(
    fleet: list[Process], store: Store
) -> None:
    """It degrades the process as any other error does, and the store is told of the slot when it is back."""
    process, plan = fleet[0], Plan(DOMAIN, pool=PoolLimit("p", 4))
    requests = await process.take_all(plan)
    store.away = True
    results: list[Released | Exception] = []
    process.gate.release_soon(Release(requests[0]), results.append)
    await process.gate.drained()
    assert results == [Released(was_held=True)]
    assert process.gate.is_degraded
    process.gate.release_soon(Release(requests[1]), results.append)
    assert results == [Released(was_held=True)] * 2, "alone it is done at once"
    assert len(await process.take_all(plan)) == 1, "what was its own when that began is its own to use again"
    store.away = False
    await look(process, 2)
    assert not process.gate.is_degraded
    assert len(await fleet[1].take_all(plan)) == 1, "the store was told of the slot that it had not heard of"


async def test_an_end_while_it_returns_stands_before_what_is_asked_meanwhile(
    fleet: list[Process], store: Store
) -> None:
    process, plan = fleet[0], Plan(DOMAIN, pool=PoolLimit("p", 1))
    (request,) = await process.take_all(plan)
    store.away = True
    await look(process)
    store.away = False
    await look(process)
    renew, results = process.way.renew, []

    async def slow_renew(renewals: Sequence[Renewal]) -> list[Lease]:
        process.gate.release_soon(Release(request), results.append)
        asking.append(asyncio.create_task(process.take(plan)))
        await asyncio.sleep(0)
        assert results == []
        return await renew(renewals)

    asking: list[asyncio.Task[Any]] = []
    alter(process.link, renew=slow_renew)
    await look(process)
    assert not process.gate.is_degraded
    assert isinstance(await asking[0], Admitted)
    assert results == [Released(was_held=True)]


async def test_a_late_end_that_raises_leaves_nobody_waiting(fleet: list[Process], store: Store) -> None:
    process, plan = fleet[0], Plan(DOMAIN, pool=PoolLimit("p", 2))
    first, second = await process.take_all(plan)
    store.away = True
    await look(process)
    store.away = False
    await look(process)
    renew, results = process.way.renew, []

    def falls(_result: Released | Exception) -> None:
        raise ValueError("who was told")

    async def slow_renew(renewals: Sequence[Renewal]) -> list[Lease]:
        process.gate.release_soon(Release(first._replace(local=True, holder=None)), falls)
        process.gate.release_soon(Release(second), results.append)
        asking.append(asyncio.create_task(process.take(plan)))
        await asyncio.sleep(0)
        return await renew(renewals)

    asking: list[asyncio.Task[Any]] = []
    alter(process.link, renew=slow_renew)
    with pytest.raises(ValueError, match="who was told"):
        await look(process)
    assert isinstance(await asyncio.wait_for(asking[0], 5), Admitted)
    assert results == [Released(was_held=True)], "the other end was told, too"
