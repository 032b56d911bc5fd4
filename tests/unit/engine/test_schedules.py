"""Schedules as programs declare them and people see, stop and run them (Q8)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fairlead.engine.jobs.schedules import Schedules, next_run_times
from fairlead.engine.ports import Schedule
from fairlead.errors import InvalidInputError, NotFoundError
from fairlead.events import ScheduleReplaced
from fairlead.testing._kit.ids import CountedIds
from tests.support.engine import Recorder
from tests.support.process import Fleet

HOURLY = Schedule("scan", "0 * * * *", "work", "acme", args={"deep": True})


@pytest.fixture
def schedules(fleet: Fleet) -> Schedules:
    return Schedules(fleet.schedule_store, fleet.jobs, ids=CountedIds(5_000_000))


async def test_a_declaration_is_checked_as_a_whole_before_anything_is_stored(schedules: Schedules) -> None:
    for wrong in (replace(HOURLY, name="other", expression="often"), replace(HOURLY, kind="mail")):
        with pytest.raises(InvalidInputError, match="hint: "):
            await schedules.declare([HOURLY, wrong])
    assert await schedules.views() == []
    await schedules.declare([])
    await schedules.declare([HOURLY])
    assert (await schedules.get("scan")).state.schedule == HOURLY


async def test_a_name_that_another_program_has_is_told(schedules: Schedules) -> None:
    """Two services with one name would replace each other's schedule at each start."""
    other = replace(HOURLY, kind="other.work")
    emit = Recorder()
    for declared in (HOURLY, replace(HOURLY, expression="5 * * * *"), other, other):
        await schedules.declare([declared], emit)
    assert emit.events == [ScheduleReplaced("scan", "work", "other.work")]


async def test_a_view_tells_the_next_run_and_what_is_overdue(fleet: Fleet, schedules: Schedules) -> None:
    await schedules.declare([HOURLY])
    await fleet.advance(600)
    early = await schedules.get("scan")
    assert (early.overdue_s, early.problem) == (0.0, None)
    assert early.next_run_at == early.state.now + timedelta(seconds=3000)
    await fleet.advance(3100)
    late = await schedules.get("scan")
    assert late.overdue_s == 100
    assert late.next_run_at == late.state.now + timedelta(seconds=3500)
    assert next_run_times(late.state, 3) == [late.next_run_at + timedelta(hours=n) for n in range(3)]
    await schedules.pause("scan", by="ann", reason="not now")
    paused = await schedules.get("scan")
    assert (paused.next_run_at, paused.overdue_s, paused.state.paused) == (None, 0.0, True)
    assert len(next_run_times(paused.state, 2)) == 2


async def test_invalid_schedule_hides_no_other(fleet: Fleet, schedules: Schedules) -> None:
    await fleet.schedule_store.sync_schedules([replace(HOURLY, name="bad", expression="often"), HOURLY])
    bad, good = await schedules.views()
    assert (bad.next_run_at, next_run_times(bad.state, 3)) == (None, [])
    assert "is no schedule" in (bad.problem or "")
    assert good.problem is None


async def test_run_makes_the_job_now_once_while_it_is_open(fleet: Fleet, schedules: Schedules) -> None:
    await schedules.declare([HOURLY])
    await schedules.pause("scan", by="ann", reason="not by itself")
    first, second = await schedules.run("scan"), await schedules.run("scan")
    assert (first.inserted, second.inserted, second.job_id) == (True, False, first.job_id)
    (job,) = await fleet.claim()
    assert (job.kind, job.tenant_id, job.args["schedule"], job.args["deep"]) == ("work", "acme", "scan", True)
    assert await schedules.runs("scan") == []  # it is no run


async def test_run_of_one_that_catches_up_makes_a_job_each_time(fleet: Fleet, schedules: Schedules) -> None:
    await schedules.declare([replace(HOURLY, missed="catch_up")])
    assert [(await schedules.run("scan")).inserted for _ in range(3)] == [True] * 3
    assert len(await fleet.claim()) == 3


async def test_missing_schedule_is_reported(schedules: Schedules) -> None:
    await schedules.declare([HOURLY])
    for act in (
        schedules.get("none\x1b"),
        schedules.run("none"),
        schedules.remove("none"),
        schedules.resume("none"),
        schedules.pause("none", by="ann", reason="upkeep"),
    ):
        with pytest.raises(NotFoundError, match=r"no schedule .* hint: ") as caught:
            await act
        assert "\x1b" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="without a reason"):
        await schedules.pause("scan", by="ann", reason=" ")
    await schedules.remove("scan")
    assert await schedules.views() == []
