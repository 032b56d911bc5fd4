"""DutyStore: schedules keep their last tick, and a tick is taken once, with its job (R4)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from fairlead.engine.ports import Schedule
from tests.contract.stores import ANY, Stores, a_session
from tests.support.engine import NOBODY, new_job

HOURLY = Schedule("scan", "0 * * * *", "token.scan", "fairlead", args={"a": 1})


async def test_a_new_schedule_begins_now_and_an_old_one_keeps_its_tick(stores: Stores) -> None:
    await stores.duties.sync_schedules([HOURLY])
    (state,) = await stores.duties.schedules()
    assert state.schedule == HOURLY
    assert abs((state.now - state.last_tick).total_seconds()) < 60
    await stores.pass_time(100)
    changed = replace(HOURLY, expression="*/5 * * * *", missed="catch_up", paused=True, priority=0, args={})
    await stores.duties.sync_schedules([changed, replace(HOURLY, name="other")])
    states = {state.schedule.name: state for state in await stores.duties.schedules()}
    assert set(states) == {"scan", "other"}
    assert states["scan"].schedule == changed
    waited_s = (states["scan"].now - states["scan"].last_tick).total_seconds()
    assert 100 <= waited_s < 160
    assert states["other"].last_tick > states["scan"].last_tick


async def test_a_tick_is_taken_once_with_its_job(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.duties.sync_schedules([HOURLY])
    (state,) = await stores.duties.schedules()
    tick = state.last_tick + timedelta(hours=1)
    takes = [
        stores.duties.take_tick("scan", state.last_tick, tick, 0, session_id, new_job("token.scan"))
        for _ in range(8)
    ]
    assert sorted(await asyncio.gather(*takes)) == [False] * 7 + [True]
    assert len(await stores.jobs.claim(ANY, 99, session_id)) == 1
    (state,) = await stores.duties.schedules()
    assert state.last_tick == tick
    later = tick + timedelta(hours=1)
    assert await stores.duties.take_tick("scan", tick, later, 3, session_id, new_job("token.scan"))
    assert not await stores.duties.take_tick("scan", tick, later, 3, session_id, new_job("token.scan"))
    assert not await stores.duties.take_tick("none", tick, later, 0, NOBODY, new_job("token.scan"))


async def test_a_tick_whose_job_is_still_open_is_taken_all_the_same(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.duties.sync_schedules([HOURLY])
    (state,) = await stores.duties.schedules()
    first = state.last_tick + timedelta(hours=1)
    second = first + timedelta(hours=1)
    job = new_job("token.scan", unique_key="schedule:scan")
    again = new_job("token.scan", unique_key="schedule:scan")
    assert await stores.duties.take_tick("scan", state.last_tick, first, 0, session_id, job)
    assert await stores.duties.take_tick("scan", first, second, 0, session_id, again)
    assert [taken.job_id for taken in await stores.jobs.claim(ANY, 9, session_id)] == [job.job_id]


async def test_a_paused_schedule_gives_no_tick(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.duties.sync_schedules([replace(HOURLY, paused=True)])
    (state,) = await stores.duties.schedules()
    tick = state.last_tick + timedelta(hours=1)
    assert not await stores.duties.take_tick("scan", state.last_tick, tick, 0, session_id, new_job())
    assert await stores.jobs.counts() == {}


async def test_pruning_forgets_old_ticks(stores: Stores) -> None:
    session_id = await a_session(stores)
    await stores.duties.sync_schedules([HOURLY])
    (state,) = await stores.duties.schedules()
    tick = state.last_tick + timedelta(hours=1)
    await stores.duties.take_tick("scan", state.last_tick, tick, 0, session_id, new_job())
    assert await stores.duties.prune(100, 10) == 0
    await stores.pass_time(101)
    assert await stores.duties.prune(100, 10) == 1
