"""Runs that end by a refused credential: the grant is looked at before anything is written."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import ConnectionKey, Discarded, GrantState, Outcome, Rescheduled
from fairlead.errors import CallFailedError, NoRefreshTokenError, ReauthRequiredError
from fairlead.policy.jobs.job import RequireReauth
from fairlead.testing._kit.clock import ManualClock
from tests.support.engine import IDS, a_job

CONNECTION = UUID(int=9)
KEY = ConnectionKey("acme", "xero", "default")


class World:
    """An executor, and what is known of the grant; the handler raises or returns *end* after 10 s."""

    def __init__(self, end: object) -> None:
        self.clock = ManualClock()
        self.end = end
        self.state: GrantState | Exception | None = None
        self.asked: list[ConnectionKey] = []
        self.errors: list[BaseException] = []
        handler = Handler("work", self.run, on_error=lambda error, context: self.errors.append(error))
        self.executor = Executor(
            [handler],
            clock=self.clock,
            draw=lambda: 0.5,
            ids=IDS,
            emit=lambda event: None,
            grants=self,
        )

    async def await_grant(self, key: ConnectionKey) -> GrantState | None:
        self.asked.append(key)
        if isinstance(self.state, Exception):
            raise self.state
        return self.state

    async def run(self, context: JobContext) -> object:
        await self.clock.advance(10.0)
        if isinstance(self.end, Exception):
            raise self.end
        return self.end

    async def outcome(self, **fields: Any) -> Outcome:
        about = {"tenant_id": "acme", "provider": "xero", "group_key": "xero/default", **fields}
        return await self.executor.run(a_job(kind="work", **about))


def final_401() -> CallFailedError:
    error = CallFailedError(
        "401", tenant="acme", provider="xero", category="permanent_auth", may_have_acted=False
    )
    error.account = "default"
    return error


ENDS = {
    "returned": lambda: RequireReauth("the customer took a permission away"),
    "raised": lambda: ReauthRequiredError("gone", tenant="acme", provider="xero"),
    "final_401": final_401,
    "refused_key": lambda: NoRefreshTokenError("401", tenant="acme", provider="xero"),
}
ends = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)


@ends
async def test_the_job_waits_in_its_place_while_the_grant_is_gone(end: Any) -> None:
    world = World(end())
    world.state = GrantState(CONNECTION, is_gone=True, changed_s=86_400.0)
    outcome = await world.outcome()
    assert isinstance(outcome, Rescheduled)
    assert (outcome.delay_s, outcome.failure, outcome.streaks) == (None, None, {"waits": 1})
    assert world.asked == [KEY]
    assert world.errors == [], "a wait is no error of the handler"


@ends
async def test_the_job_is_a_dead_letter_of_its_connection_where_the_grant_is_fine(end: Any) -> None:
    world = World(end())
    world.state = GrantState(CONNECTION, is_gone=False, changed_s=11.0)
    outcome = await world.outcome()
    assert isinstance(outcome, Discarded)
    assert (outcome.failure.category, outcome.connection_id) == ("permanent_auth", CONNECTION)
    assert outcome.action_in_s == 0, "the reauthorise workflow starts at once"
    assert len(world.errors) == isinstance(world.end, Exception)


@ends
async def test_the_job_runs_again_where_the_grant_was_given_meanwhile(end: Any) -> None:
    world = World(end())
    world.state = GrantState(CONNECTION, is_gone=False, changed_s=9.0)
    outcome = await world.outcome()
    assert isinstance(outcome, Rescheduled)
    assert (outcome.delay_s, outcome.streaks) == (1.0, {"waits": 1})


@ends
async def test_no_run_is_judged_by_a_database_that_is_away(end: Any) -> None:
    world = World(end())
    world.state = ConnectionError("away")
    outcome = await world.outcome()
    assert isinstance(outcome, Rescheduled)
    assert outcome.delay_s == 5.0


@ends
async def test_a_job_of_another_group_looks_again(end: Any) -> None:
    error = end()
    if isinstance(error, Exception):
        error.account = "default"
    world = World(error)
    world.state = GrantState(CONNECTION, is_gone=True, changed_s=86_400.0)
    outcome = await world.outcome(group_key="nightly")
    if isinstance(error, RequireReauth):  # nothing says of which connection
        assert isinstance(outcome, Discarded)
        assert world.asked == []
    else:
        assert isinstance(outcome, Rescheduled)
        assert outcome.delay_s == 5.0


@ends
async def test_no_job_waits_for_ever(end: Any) -> None:
    world = World(end())
    world.state = GrantState(CONNECTION, is_gone=True, changed_s=86_400.0)
    assert isinstance(await world.outcome(streaks={"waits": 60}), Discarded)


async def test_a_connection_of_another_tenant_stays_out_of_the_dead_letter() -> None:
    world = World(ReauthRequiredError("gone", tenant="other", provider="xero"))
    world.state = GrantState(CONNECTION, is_gone=False, changed_s=86_400.0)
    outcome = await world.outcome()
    assert isinstance(outcome, Discarded)
    assert outcome.connection_id is None
