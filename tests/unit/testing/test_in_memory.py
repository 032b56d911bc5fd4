"""MemoryFairlead: what a user's tests see of jobs that run without any server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from fairlead import Discard, Fairlead, JobContext
from fairlead.errors import (
    InvalidConfigError,
    InvalidInputError,
    JobFailedError,
    JobNotFinishedError,
    NotFoundError,
    TransientFailureError,
)
from fairlead.events import GroupPaused, JobFinished
from fairlead.testing import MemoryFairlead


@pytest.fixture
def fl() -> Fairlead:
    return Fairlead.from_env({})


async def test_nothing_runs_before_it_is_drained_and_time_stands_still(fl: Fairlead) -> None:
    @fl.job
    async def greet(ctx: JobContext, name: str) -> str:
        return f"hello {name}"

    async with MemoryFairlead(fl, start=datetime(2030, 1, 1, tzinfo=UTC)) as mem:
        now = await greet.enqueue("Ada", tenant="acme")
        later = await greet.enqueue("Bob", tenant="acme", delay_s=60)
        with pytest.raises(JobNotFinishedError) as unfinished:
            await fl.result(now, timeout_s=5)
        assert unfinished.value.retry_after_s
        (ran,) = await mem.drain()
        assert (ran.job_id, ran.state, ran.result) == (now, "completed", "hello Ada")
        assert await fl.result(now) == "hello Ada"
        assert await mem.drain() == []
        await mem.advance(60)
        assert [job.job_id for job in await mem.drain()] == [later]
        assert mem.now == datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
        assert [event.outcome for event in mem.events if isinstance(event, JobFinished)] == ["completed"] * 2


async def test_time_goes_on_from_one_due_job_to_the_next(fl: Fairlead) -> None:
    attempts: list[datetime] = []

    @fl.job
    async def flaky(ctx: JobContext) -> None:
        attempts.append(mem.now)
        if ctx.attempt < 3:
            raise TransientFailureError("503")

    async with MemoryFairlead(fl) as mem:
        start_at = mem.now
        job_id = await flaky.enqueue(tenant="acme")
        ran = await mem.drain(within_s=3600)
        assert [job.attempt for job in ran] == [1, 2, 3]
        assert attempts == sorted(set(attempts))
        assert (await mem.job(job_id)).state == "completed"
        assert mem.now == start_at + timedelta(hours=1)


async def test_failed_runs_are_reported(fl: Fairlead) -> None:
    @fl.job
    async def refuses(ctx: JobContext) -> Discard:
        return Discard("the customer is gone")

    @fl.job
    async def breaks(ctx: JobContext) -> None:
        raise ZeroDivisionError("oh")

    async with MemoryFairlead(fl) as mem:
        job_id = await refuses.enqueue(tenant="acme")
        await mem.drain()
        (dead,) = await mem.dead_letters()
        assert dead.reason == "the customer is gone"
        with pytest.raises(JobFailedError, match="the customer is gone"):
            await fl.result(job_id)
        with pytest.raises(NotFoundError):
            await fl.result(dead.dead_letter_id)
        await breaks.enqueue(tenant="acme", expires_in_s=600)
        with pytest.raises(ZeroDivisionError):
            await mem.drain(raise_errors=True)
        assert len(await mem.jobs(state="retryable")) == 1


async def test_a_late_job_expires(fl: Fairlead) -> None:
    @fl.job
    async def late(ctx: JobContext) -> None: ...

    async with MemoryFairlead(fl) as mem:
        await late.enqueue(tenant="acme", expires_in_s=10)
        await mem.advance(11)
        assert await mem.drain() == []
        assert [dead.code for dead in await mem.dead_letters()] == ["expired"]


async def test_a_paused_group_waits_and_the_others_run_on(fl: Fairlead) -> None:
    flags = [True]

    @fl.job
    async def call(ctx: JobContext) -> object:
        if ctx.group == "shopify/default" and flags.pop() if flags else False:
            return ctx.pause(120, reason="429")
        return ctx.group

    async with MemoryFairlead(fl) as mem:
        for _ in range(2):
            await call.enqueue(tenant="acme", provider="shopify")
        await call.enqueue(tenant="acme", provider="hubspot")
        await call.enqueue(tenant="globex", provider="shopify")
        first = await mem.drain()
        assert sorted(job.result or "" for job in first) == ["", "hubspot/default", "shopify/default"]
        (pause,) = await mem.pauses()
        assert (pause.scope.key, pause.scope.tenant, pause.reason) == ("shopify/default", "acme", "429")
        assert len([event for event in mem.events if isinstance(event, GroupPaused)]) == 1
        assert len(await mem.drain(119)) == 0
        then = await mem.drain(2)
        assert [(job.tenant_id, job.result, job.attempt) for job in then] == [
            ("acme", "shopify/default", 1)
        ] * 2
        assert await mem.pauses() == []


async def test_schedules_run_by_the_clock_of_the_test(fl: Fairlead) -> None:
    calls: list[tuple[str, bool]] = []

    @fl.cron("0 3 * * *", timezone="Europe/Madrid")
    async def nightly(ctx: JobContext, dry: bool = False) -> None:
        calls.append((str(ctx.args["run_at"]), dry))

    fl.schedule("hourly", "@hourly", nightly, args={"dry": True}, tenant="acme")
    async with MemoryFairlead(fl) as mem:
        await mem.drain(86_400)
        await mem.drain()
    assert [run_at for run_at, dry in calls if not dry] == ["2026-01-01T02:00:00+00:00"]
    assert len([run_at for run_at, dry in calls if dry]) == 24


async def test_tokens_are_those_that_were_given(fl: Fairlead) -> None:
    async with MemoryFairlead(fl) as mem:
        with pytest.raises(NotFoundError, match="give_token"):
            await fl.token("acme", "shopify")
        token = mem.give_token("acme", "shopify", "shpat")
        assert await fl.token("acme", "shopify") == token
        assert await fl.refresh("acme", "shopify") == token
        fresh = await fl.refresh("acme", "shopify", newer_than=token.generation)
        assert (fresh.access_token.reveal(), fresh.generation) == ("shpat-2", 2)
        assert await fl.refresh("acme", "shopify", newer_than=1) == fresh
        assert fl.sync.token("acme", "shopify") == fresh


def test_blocking_code_is_tested_as_well(fl: Fairlead) -> None:
    @fl.job
    def double(ctx: JobContext, number: int) -> int:
        return 2 * number

    with MemoryFairlead(fl) as mem:
        job = fl.sync.enqueue(double, {"number": 1}, tenant="acme")
        two = fl.sync.enqueue("double", {"number": 2}, tenant="acme", transaction=object())
        with pytest.raises(JobNotFinishedError):
            fl.sync.result(job)
        with pytest.raises(InvalidInputError, match="cannot wait for a job in memory"):
            fl.sync.result(job, timeout_s=1)
        asyncio.run(mem.drain())
        assert (fl.sync.result(job), fl.sync.result(two)) == (2, 4)


async def test_memory_runtime_opens_once_and_runs_only_while_open(fl: Fairlead) -> None:
    mem = MemoryFairlead(fl)
    with pytest.raises(InvalidConfigError, match="not open"):
        await mem.drain()
    async with mem:
        with pytest.raises(InvalidConfigError, match="already open"):
            MemoryFairlead(fl).__enter__()
        with pytest.raises(InvalidConfigError, match="already open"):
            await fl.__aenter__()
        with pytest.raises(NotFoundError):
            await mem.job((await fl.enqueue_many([])) or mem._ids.uuid7())  # type: ignore[arg-type]
    with pytest.raises(InvalidConfigError, match="async with"):
        await fl.enqueue("x", tenant="acme")


async def test_jobs_without_end_are_noticed(fl: Fairlead) -> None:
    @fl.job
    async def again(ctx: JobContext) -> None:
        await again.enqueue(tenant="acme")

    async with MemoryFairlead(fl) as mem:
        await again.enqueue(tenant="acme")
        with pytest.raises(AssertionError, match="20 runs, and no end"):
            await mem.drain(max_runs=20)


async def test_a_kind_without_a_handler_stays(fl: Fairlead) -> None:
    async with MemoryFairlead(fl) as mem:
        await fl.enqueue("elsewhere", tenant="acme")
        assert await mem.drain(3600) == []
        assert len(await mem.jobs(state="available")) == 1
