"""Calls inside of a job: which waits are spent there, and which are the job's (C7)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from fairlead.engine.jobs.handler import JobContext, current_job
from fairlead.engine.ports import HttpResponse, NoResponse
from fairlead.errors import (
    CallFailedError,
    DeadlineExceededError,
    LimitExceededError,
    RefreshInProgressError,
    RefusedError,
)
from fairlead.events import CallsFailed
from fairlead.policy.failures.retry import DiscardJob, RetryAt, decide
from fairlead.policy.jobs.dead_letter import WaitForPerson, first_action
from fairlead.policy.jobs.job import Retry, Snooze, outcome_of_exception
from tests.unit.engine.test_pipeline import GET, World, answer

CLOSED = LimitExceededError("no room", retry_after_s=40.0, reason="rate")
BUSY = RefreshInProgressError("another asks", retry_after_s=1.0)
PUT = replace(GET, method="PUT", body=b"{}")


@contextmanager
def a_job() -> Iterator[None]:
    """The block runs in one that has 60 s left."""
    job: Any = SimpleNamespace(attempt=1, job_id=UUID(int=9))
    running = current_job.set(JobContext(job, lambda: 60.0))
    try:
        yield
    finally:
        current_job.reset(running)


async def failed_of(world: World) -> CallFailedError | RefusedError:
    """What a PUT of *world* ends in."""
    with pytest.raises((CallFailedError, RefusedError)) as failed:
        await world.call(PUT)
    return failed.value


def loud(world: World) -> int:
    return len([event for event in world.events if isinstance(event, CallsFailed)])


async def test_in_a_job_a_long_wait_is_the_jobs() -> None:
    job: Any = SimpleNamespace(attempt=1, job_id=UUID(int=9))
    for left_s, error in ((60.0, CallFailedError), (10.0, DeadlineExceededError)):
        world = World([answer(429, retry_after="5")])
        running = current_job.set(JobContext(job, lambda left_s=left_s: left_s))  # type: ignore[misc]
        try:
            with pytest.raises(error) as raised:
                await world.call(GET)
        finally:
            current_job.reset(running)
    assert raised.value.retry_after_s is None, "it would be run again at once, and without end"


@pytest.mark.parametrize(("inline_wait_s", "sends"), [(0.5, 1), (20.0, 2)])
async def test_how_long_a_wait_is_spent_in_a_job_is_a_setting(inline_wait_s: float, sends: int) -> None:
    """K2: of the connection; the gate is told the same."""
    world = World([answer(429, retry_after="1"), answer(200)])
    world.settings = {"inline_wait_s": inline_wait_s}
    job: Any = SimpleNamespace(attempt=1, job_id=UUID(int=9))
    running = current_job.set(JobContext(job, lambda: 60.0))
    try:
        with suppress(CallFailedError):
            await world.call(GET)
    finally:
        current_job.reset(running)
    assert len(world.sent) == sends
    assert {request.wait_s for request in world.wishes} == {inline_wait_s}


WAITS: list[World] = [
    World([answer(429, retry_after="30")]),
    World([answer(429, retry_after="1"), CLOSED]),
    World([answer(401), CLOSED]),
    World([answer(401)], no_newer=BUSY),
]


@pytest.mark.parametrize("played", WAITS, ids=["429", "429, closed", "401, closed", "401, busy"])
async def test_limit_that_the_job_waits_for_is_no_loud_failure(played: World) -> None:
    """It is every day's news that a limit is reached; a warning of it hides the others."""
    world = World([*played.answers], no_newer=played.no_newer, settings={"inline_wait_s": 10.0})
    with a_job():
        assert isinstance(outcome_of_exception(await failed_of(world), draw=0.5), Snooze)
    assert loud(world) == 0
    assert world.events[-1].then == "fail", "its record is there"
    alone_world = World([*played.answers], no_newer=played.no_newer, settings={"deadline_s": 20.0})
    await failed_of(alone_world)
    assert loud(alone_world) == 1, "nobody comes back for it"


async def test_a_limit_after_an_attempt_that_may_have_acted_is_a_failure_and_burns_an_attempt() -> None:
    world = World([answer(500), answer(429, retry_after="30")], settings={"inline_wait_s": 10.0})
    with a_job():
        failed = await failed_of(world)
    assert isinstance(failed, CallFailedError)
    assert (failed.response.status, failed.may_have_acted) == (429, True)
    assert isinstance(outcome_of_exception(failed, draw=0.5), Retry)
    assert loud(world) == 1
    world = World([answer(429, retry_after="1"), answer(429, retry_after="30")])
    with a_job():
        failed = await failed_of(world)
    assert isinstance(failed, CallFailedError)
    assert not failed.may_have_acted


@pytest.mark.parametrize(
    "response", [NoResponse(sent=True, kind="connection_lost", why="cut"), answer(503)], ids=["lost", "503"]
)
async def test_a_job_does_not_repeat_a_post_that_may_have_acted(response: HttpResponse | NoResponse) -> None:
    """A person decides: the job's retries, and the replays of its dead letter, would do it twice."""
    for call, decision in ((replace(GET, method="POST", body=b"{}"), DiscardJob), (PUT, RetryAt)):
        world = World([response], settings={"max_retries": 0})
        with a_job(), pytest.raises(CallFailedError) as failed:
            await world.call(call)
        outcome = outcome_of_exception(ExceptionGroup("g", [failed.value, OSError("x")]), draw=0.5)
        assert isinstance(outcome, Retry)
        assert isinstance(decide(outcome.failure, {}, 1, draw=0.5), decision)
        first = first_action(outcome.failure.category, outcome.failure.code, datetime(2026, 1, 1, tzinfo=UTC))
        assert isinstance(first, WaitForPerson) is (call is not PUT)
