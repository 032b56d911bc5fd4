"""One run of one job: every answer, every kind of failure, timeouts, hostile handlers, cancellation."""

from __future__ import annotations

import asyncio
import math
from typing import Any
from uuid import UUID

import pytest

from fairlead.engine.jobs.executor import UNKNOWN_KIND_SNOOZE_S, Executor
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import Cancelled, Completed, Discarded, Job, Outcome, Rescheduled
from fairlead.errors import (
    InvalidConfigError,
    InvalidInputError,
    NotSentError,
    RateLimitedError,
    RequestRejectedError,
    TransientFailureError,
)
from fairlead.events import JobFinished
from fairlead.policy.failures.category import TRANSIENT, Category, Failure
from fairlead.policy.failures.retry import DEFAULT_RULES, RetryPolicy
from fairlead.policy.jobs.job import Cancel, Complete, Discard, RequireReauth, Snooze
from fairlead.testing._kit.clock import ManualClock
from fairlead.testing._kit.ids import CountedIds
from tests.support.engine import Recorder, a_job, half
from tests.support.runs import Run, raising, returning


def executor(*handlers: Handler, clock: ManualClock | None = None, **more: Any) -> Executor:
    more.setdefault("emit", Recorder())
    return Executor(handlers, clock=clock or ManualClock(), draw=half, ids=CountedIds(), **more)


async def outcome_of(run: Run, job: Job | None = None, **more: Any) -> Outcome:
    return await executor(Handler("work", run), **more).run(job or a_job())


# ---- answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "result"),
    [(None, None), (Complete(), None), ({"n": 1}, {"n": 1}), (Complete([1, "x"]), [1, "x"]), (7, 7)],
)
async def test_done_keeps_the_result(answer: object, result: object) -> None:
    job = a_job()
    assert await outcome_of(returning(answer), job) == Completed(job.job_id, job.lease_id, result)


@pytest.mark.parametrize("result", [math.nan, "a\0b", "\ud800", object(), {1: {2}}, "x" * 1_000_000, 10**400])
async def test_a_result_that_json_cannot_say_is_still_done(result: object) -> None:
    outcome = await outcome_of(returning(result))
    assert isinstance(outcome, Completed)
    assert "\0" not in repr(outcome.result)
    assert len(repr(outcome.result)) < 70_000


async def test_a_snooze_burns_no_attempt() -> None:
    job = a_job(streaks={"transient_server": 2})
    assert await outcome_of(returning(Snooze(12)), job) == Rescheduled(job.job_id, job.lease_id, 12.0)


async def test_outcome_set_on_the_context_counts_without_a_return() -> None:
    async def forgets_to_return(context: JobContext) -> None:
        context.snooze(9)

    async def cancels(context: JobContext) -> object:
        return context.cancel("no longer wanted")

    outcome = await outcome_of(forgets_to_return)
    assert isinstance(outcome, Rescheduled)
    assert outcome.delay_s == 9
    assert outcome.failure is None
    outcome = await outcome_of(cancels)
    assert isinstance(outcome, Cancelled)
    assert outcome.reason == "no longer wanted"


async def test_cancel_discard_and_reauth_end_the_job() -> None:
    connection_id = UUID(int=7)
    job = a_job(args={"connection_id": str(connection_id)})
    cancelled = await outcome_of(returning(Cancel("why")), job)
    assert cancelled == Cancelled(job.job_id, job.lease_id, "why")
    discarded = await outcome_of(returning(Discard("bad data", Category.PERMANENT_CONFIG)), job)
    assert isinstance(discarded, Discarded)
    assert (discarded.failure.category, discarded.failure.reason) == ("permanent_config", "bad data")
    assert discarded.action_in_s == 7 * 86_400  # a person's turn, until it is abandoned
    reauth = await outcome_of(returning(RequireReauth("revoked")), job)
    assert isinstance(reauth, Discarded)
    assert (reauth.failure.category, reauth.connection_id) == ("permanent_auth", connection_id)
    assert reauth.action_in_s == 0  # the reauthorise workflow starts at once


async def test_the_context_shows_the_job_and_its_time() -> None:
    clock, attempts = ManualClock(), []

    async def run(context: JobContext) -> None:
        attempts.append((context.tenant, context.provider, context.attempt, dict(context.args)))
        attempts.append(context.remaining_s)
        await clock.sleep(10)
        attempts.append(context.remaining_s)

    doer = executor(Handler("work", run, timeout_s=40), clock=clock)
    task = asyncio.create_task(doer.run(a_job(provider="shopify", attempt=3, args={"a": 1})))
    await clock.wait_sleepers(2)
    await clock.advance(10)
    await task
    assert attempts == [("acme", "shopify", 3, {"a": 1}), 40, 30]


# ---- failures ----------------------------------------------------------------------------------

FAILURES = [
    (NotSentError("no route"), Category.TRANSIENT_NETWORK, "not_sent"),
    (NotSentError("no name", reason="dns"), Category.TRANSIENT_NETWORK, "not_sent_dns"),
    (
        NotSentError("bad", category="permanent_config", reason="tls"),
        Category.PERMANENT_CONFIG,
        "not_sent_tls",
    ),
    (TransientFailureError("503"), Category.TRANSIENT_SERVER, "transient_failure"),
    (ConnectionResetError("reset"), Category.TRANSIENT_NETWORK, "connection_reset"),
    (RequestRejectedError("422"), Category.PERMANENT_REQUEST, "request_rejected"),
    (
        RequestRejectedError("403", category="permanent_permission"),
        Category.PERMANENT_PERMISSION,
        "request_rejected",
    ),
    (InvalidConfigError("client"), Category.PERMANENT_CONFIG, "invalid_config"),
    (
        TransientFailureError("429", category="transient_rate_limit"),
        Category.TRANSIENT_RATE_LIMIT,
        "transient_failure",
    ),
    (ZeroDivisionError("x"), Category.HANDLER_ERROR, "zero_division_error"),
]


@pytest.mark.parametrize(("error", "category", "code"), FAILURES, ids=str)
async def test_each_category_is_retried_to_its_limit_and_dies(
    error: Exception, category: Category, code: str
) -> None:
    job, delays = a_job(), []
    while True:
        outcome = await outcome_of(raising(error), job)
        if isinstance(outcome, Discarded):
            break
        assert isinstance(outcome, Rescheduled)
        assert outcome.failure is not None
        assert outcome.failure.next_retry_s == outcome.delay_s
        delays.append(outcome.delay_s)
        job = a_job(attempt=job.attempt + 1, streaks=outcome.streaks)
    assert len(delays) == DEFAULT_RULES[category].attempts
    assert (outcome.failure.category, outcome.failure.code) == (category.value, code)
    assert outcome.failure.reason
    assert outcome.failure.details["why"]
    assert ("unclassified" in outcome.failure.details) is (code == "unclassified")
    assert (outcome.action_in_s == 300.0) == (category in TRANSIENT)


async def test_a_refusal_that_names_its_time_is_a_wait() -> None:
    outcome = await outcome_of(raising(RateLimitedError("cooling down", retry_after_s=20)))
    assert isinstance(outcome, Rescheduled)
    assert outcome.failure is None
    assert outcome.delay_s == 21.0


async def test_a_kind_brings_its_own_rules_and_a_provider_its_factor() -> None:
    stubborn = RetryPolicy(
        {**DEFAULT_RULES, Category.TRANSIENT_SERVER: DEFAULT_RULES[Category.PERMANENT_REQUEST]}
    )
    handler = Handler("work", raising(TransientFailureError("503")), retry=stubborn)
    assert isinstance(await executor(handler).run(a_job()), Discarded)
    outcome = await outcome_of(
        raising(TransientFailureError("503")),
        a_job(provider="mercadolibre"),
        delay_factor=lambda provider: 1.5,
    )
    assert isinstance(outcome, Rescheduled)
    assert outcome.delay_s == 2.0 * 1.5 / 2


@pytest.mark.parametrize(("ran_s", "wait_s"), [(20.0, 60.0), (40.0, 180.0), (60.0, 300.0)])
async def test_after_a_timeout_the_retry_waits_by_how_long_it_ran(ran_s: float, wait_s: float) -> None:
    clock = ManualClock()

    async def hangs(context: JobContext) -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(executor(Handler("work", hangs, timeout_s=ran_s), clock=clock).run(a_job()))
    await clock.wait_sleepers()
    await clock.advance(ran_s)
    outcome = await task
    assert isinstance(outcome, Rescheduled)
    assert outcome.failure is not None
    assert outcome.failure.code == "job_timeout"
    assert wait_s <= outcome.delay_s <= wait_s * 1.1


async def test_a_timeout_of_the_handlers_own_is_not_the_jobs() -> None:
    outcome = await outcome_of(raising(TimeoutError("upstream")))
    assert isinstance(outcome, Rescheduled)
    assert outcome.failure is not None
    assert outcome.failure.code == "timeout"


async def test_error_of_a_handler_after_its_timeout_is_the_timeout() -> None:
    clock = ManualClock()

    async def hangs(context: JobContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("closing failed")

    task = asyncio.create_task(executor(Handler("work", hangs, timeout_s=5), clock=clock).run(a_job()))
    await clock.wait_sleepers()
    await clock.advance(5)
    outcome = await task
    assert isinstance(outcome, Rescheduled)
    assert outcome.failure is not None
    assert outcome.failure.code == "job_timeout"


# ---- cancellation --------------------------------------------------------------------------------


async def test_a_cancellation_that_nobody_asked_for_is_a_failure() -> None:
    """Else the task would end silently and its job would stay running for as long as its process lives."""

    async def awaits_something_cancelled(context: JobContext) -> None:
        other = asyncio.get_running_loop().create_future()
        other.cancel()
        await other

    outcome = await outcome_of(awaits_something_cancelled)
    assert isinstance(outcome, Rescheduled)
    assert outcome.failure is not None


async def test_a_task_group_whose_child_failed_is_no_cancellation() -> None:
    async def fails() -> None:
        raise OSError("the vendor is away")

    async def handles(context: JobContext) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    outcome = await outcome_of(handles)
    assert isinstance(outcome, Rescheduled)
    assert outcome.failure is not None
    assert outcome.failure.code == "network"


async def test_a_cancellation_from_outside_passes() -> None:
    clock = ManualClock()
    emit = Recorder()

    async def hangs(context: JobContext) -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(executor(Handler("work", hangs), clock=clock, emit=emit).run(a_job()))
    await clock.wait_sleepers()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert emit.events == []


# ---- what is not run -----------------------------------------------------------------------------


async def test_an_unknown_kind_is_given_back_and_burns_nothing() -> None:
    emit = Recorder()
    job = a_job("from.the.future")
    outcome = await outcome_of(returning(None), job, emit=emit)
    assert outcome == Rescheduled(job.job_id, job.lease_id, UNKNOWN_KIND_SNOOZE_S)
    assert emit.of(JobFinished)[0].outcome == "snoozed"


async def test_the_log_says_why_a_job_waits() -> None:
    emit = Recorder()
    full = NotSentError("the journal cannot grow: No space left on device", tenant="acme", retry_after_s=1.0)
    await outcome_of(raising(full), emit=emit)
    (event,) = emit.of(JobFinished)
    assert (event.outcome, event.category) == ("snoozed", None)
    assert event.reason == "the journal cannot grow: No space left on device (tenant='acme')"


@pytest.mark.parametrize(("left_s", "timeout_s", "runs"), [(14.9, 60, False), (15, 60, True), (3, 10, True)])
async def test_with_too_little_time_left_it_is_not_begun(left_s: float, timeout_s: float, runs: bool) -> None:
    clock = ManualClock(100.0)
    handler = Handler("work", returning("ran"), timeout_s=timeout_s)
    job = a_job()
    outcome = await executor(handler, clock=clock).run(job, lambda: 100.0 + left_s)
    if runs:
        assert isinstance(outcome, Completed)
    else:
        assert outcome == Rescheduled(job.job_id, job.lease_id, 30.0)


async def test_a_drain_shortens_what_the_handler_sees_not_its_timeout() -> None:
    clock, ends, attempts = ManualClock(), [math.inf], []

    async def run(context: JobContext) -> None:
        attempts.append(context.remaining_s)
        ends[0] = 45.0
        attempts.append(context.remaining_s)

    await executor(Handler("work", run, timeout_s=60), clock=clock).run(a_job(), lambda: ends[0])
    assert attempts == [60, 45]


# ---- what is told ----------------------------------------------------------------------------------


async def test_each_run_is_told_with_what_the_log_line_needs() -> None:
    emit = Recorder()
    job = a_job(provider="shopify", attempt=2, streaks={"transient_server": 1})
    await outcome_of(raising(TransientFailureError("503 from the shop")), job, emit=emit)
    event = emit.of(JobFinished)[0]
    assert (event.job_id, event.kind, event.tenant, event.provider) == (job.job_id, "work", "acme", "shopify")
    assert (event.outcome, event.attempt, event.category) == ("retried", 2, "transient_server")
    assert event.code == "transient_failure"
    assert event.reason is not None
    assert "503 from the shop" in event.reason
    assert event.next_retry_s == 2.0


def test_two_handlers_for_one_kind_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match="hint:"):
        executor(Handler("work", returning(1)), Handler("work", returning(2)))


@pytest.mark.parametrize("timeout_s", [0, -1, math.inf, math.nan])
def test_an_impossible_timeout_is_refused(timeout_s: float) -> None:
    with pytest.raises(InvalidConfigError, match="timeout"):
        Handler("work", returning(1), timeout_s=timeout_s)


def test_an_impossible_kind_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="kind"):
        Handler("Work!", returning(1))


def test_retry_needs_a_failure_with_a_reason() -> None:
    with pytest.raises(ValueError, match="reason"):
        Failure(Category.TRANSIENT_SERVER, "code", " ")
