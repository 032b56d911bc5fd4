"""A handler that meets a 429 pauses its group; what cannot be paused fails nothing (Q7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import Completed, Discarded, Job, Outcome, Rescheduled
from fairlead.errors import DependencyUnavailableError, RequestRejectedError
from fairlead.events import GroupPaused, GroupPauseFailed
from fairlead.policy.jobs.job import Complete
from fairlead.policy.jobs.lane import Scope, ScopeKind
from fairlead.testing._kit.clock import ManualClock
from fairlead.testing._kit.ids import CountedIds
from tests.support.engine import Recorder, a_job, half


class Pauses:
    """The part of a LaneStore that an executor uses."""

    def __init__(self, error: Exception | None = None) -> None:
        self.made: list[tuple[Scope, float | None, str, str]] = []
        self._error = error

    async def pause(self, scope: Scope, for_s: float | None, *, reason: str, by: str) -> int:
        if self._error is not None:
            raise self._error
        self.made.append((scope, for_s, reason, by))
        return 1


async def ran(
    act: Callable[[JobContext], object], pauses: Pauses | None, emit: Recorder, **fields: Any
) -> tuple[Job, Outcome]:
    async def run(context: JobContext) -> object:
        return act(context)

    executor = Executor(
        [Handler("work", run)], clock=ManualClock(), draw=half, ids=CountedIds(), emit=emit, pauses=pauses
    )
    job = a_job(**fields)
    return job, await executor.run(job)


SHOPIFY = Scope(ScopeKind.GROUP, "shopify/default", "acme")


@pytest.mark.parametrize("returned", [True, False])
async def test_the_group_is_paused_and_the_job_snoozes_as_long(returned: bool) -> None:
    pauses, emit = Pauses(), Recorder()

    def act(context: JobContext) -> object:
        outcome = context.pause(120, reason="429")
        return outcome if returned else None

    job, outcome = await ran(act, pauses, emit, group_key="shopify/default", provider="shopify")
    assert pauses.made == [(SHOPIFY, 120.0, "429", f"job {job.job_id} (work)")]
    assert outcome == Rescheduled(job.job_id, job.lease_id, 120.0)
    event = emit.of(GroupPaused)[0]
    assert (event.scope, event.for_s, event.reason) == (str(SHOPIFY), 120.0, "429")


@pytest.mark.parametrize(
    ("options", "scope"),
    [
        ({}, SHOPIFY),
        ({"group": "other"}, Scope(ScopeKind.GROUP, "other", "acme")),
        ({"scope": "tenant"}, Scope(ScopeKind.TENANT, "acme")),
        ({"scope": "provider"}, Scope(ScopeKind.PROVIDER, "shopify")),
    ],
)
async def test_more_than_the_own_group_can_be_paused(options: dict[str, Any], scope: Scope) -> None:
    pauses = Pauses()
    await ran(
        lambda context: context.pause(5, **options),
        pauses,
        Recorder(),
        group_key="shopify/default",
        provider="shopify",
    )
    assert [pause[0] for pause in pauses.made] == [scope]


async def test_a_scope_is_paused_once_for_the_longest_time() -> None:
    pauses = Pauses()

    def act(context: JobContext) -> None:
        for for_s in (5, 60, 30):
            context.pause(for_s)
        context.pause(7, scope="tenant")

    _, outcome = await ran(act, pauses, Recorder(), group_key="shopify/default")
    assert [pause[:2] for pause in pauses.made] == [(SHOPIFY, 60.0), (Scope(ScopeKind.TENANT, "acme"), 7.0)]
    assert isinstance(outcome, Rescheduled)
    assert outcome.delay_s == 7.0, "its own wait is the last that it asked for"


async def test_the_pause_is_there_before_the_outcome_and_also_where_the_run_fails() -> None:
    pauses = Pauses()

    def act(context: JobContext) -> None:
        context.pause(60)
        raise RequestRejectedError("gone", category="permanent_request")

    _, outcome = await ran(act, pauses, Recorder(), group_key="shopify/default")
    assert len(pauses.made) == 1
    assert isinstance(outcome, Discarded)


async def test_a_result_is_a_result() -> None:
    pauses = Pauses()

    def act(context: JobContext) -> Complete:
        context.pause(60)
        return Complete("all the same")

    _, outcome = await ran(act, pauses, Recorder(), group_key="shopify/default")
    assert len(pauses.made) == 1
    assert not isinstance(outcome, Rescheduled)


@pytest.mark.parametrize(
    ("pauses", "fields", "expected"),
    [
        (Pauses(DependencyUnavailableError("away")), {"group_key": "g"}, "away"),
        (Pauses(), {"group_key": ""}, "names nothing to pause"),
        (None, {"group_key": "g"}, "no pauses are stored here"),
    ],
)
async def test_a_pause_that_cannot_be_made_fails_nothing(
    pauses: Pauses | None, fields: dict[str, Any], expected: str
) -> None:
    emit = Recorder()
    job, outcome = await ran(lambda context: context.pause(30), pauses, emit, **fields)
    assert outcome == Rescheduled(job.job_id, job.lease_id, 30.0)
    assert expected in emit.of(GroupPauseFailed)[0].reason
    assert emit.of(GroupPaused) == []


async def test_a_run_that_is_cut_off_while_its_pause_is_written_has_ended() -> None:
    """What it had done before would be done again."""

    class Silent(Pauses):
        async def pause(self, scope: Scope, for_s: float | None, *, reason: str, by: str) -> int:
            requested.set()
            await asyncio.Event().wait()
            return 0

    def act(context: JobContext) -> object:
        context.pause(30)
        return Complete("sent")

    requested, emit = asyncio.Event(), Recorder()
    run = asyncio.create_task(ran(act, Silent(), emit, group_key="g"))
    await requested.wait()
    run.cancel()
    _, outcome = await run
    assert isinstance(outcome, Completed)
    assert "stopped meanwhile" in emit.of(GroupPauseFailed)[0].reason


async def test_an_impossible_time_is_a_failure_and_pauses_nothing() -> None:
    pauses = Pauses()
    _, outcome = await ran(lambda context: context.pause(-1), pauses, Recorder(), group_key="g")
    assert isinstance(outcome, Discarded)
    assert pauses.made == []
