"""Was it sent? What no attempt let out of this process is a refusal, and told as one."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from fairlead.engine.ports import ConnectionKey, HttpRequest, HttpResponse, NoResponse, NoResponseKind
from fairlead.errors import (
    CallFailedError,
    DependencyUnavailableError,
    FairleadError,
    InvalidConfigError,
    InvalidInputError,
    LimitExceededError,
    NotFoundError,
    NotSentError,
)
from fairlead.policy.failures.process_health import HINTS
from fairlead.policy.jobs.job import MOST_WAITS, Retry, Snooze, outcome_of_exception
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.tokens.token import PublicToken
from tests.unit.engine.test_pipeline import GET, POST, World, answer

NEVER_LEFT: list[tuple[NoResponseKind, str]] = [
    ("dns", "transient_network"),
    ("connect", "transient_network"),
    ("timeout", "transient_network"),
    ("tls", "permanent_config"),
    ("refused_address", "permanent_config"),
]


@pytest.mark.parametrize(("kind", "category"), NEVER_LEFT)
async def test_request_that_never_left_is_not_sent(kind: NoResponseKind, category: str) -> None:
    never = NoResponse(False, kind, "it did not leave")
    world = World([never] * 9)
    with pytest.raises(NotSentError, match="it did not leave") as refused:
        await world.call(POST)
    assert (refused.value.sent, refused.value.reason, refused.value.category) == (False, kind, category)
    assert refused.value.retryable is category.startswith("transient")
    outcome = outcome_of_exception(refused.value, draw=0.5)
    assert isinstance(outcome, Retry), "a job burns an attempt: it would come back for ever"
    assert (outcome.failure.category, outcome.failure.code) == (category, f"not_sent_{kind}")
    async with AsyncExitStack() as stack:
        with pytest.raises(NotSentError):
            await stack.enter_async_context(World([never] * 9).pipeline().stream(GET))


@pytest.mark.parametrize("kind", HINTS)
async def test_job_that_met_a_fault_of_its_own_process_spends_no_attempt(kind: NoResponseKind) -> None:
    never = NoResponse(False, kind, "it did not leave")
    world = World([never] * 9)
    with pytest.raises(NotSentError) as refused:
        await world.call(POST)
    assert refused.value.hint == HINTS[kind]
    assert {admission.health for admission in world.admissions} == {DestinationHealth.NEUTRAL}
    waits = [
        outcome_of_exception(refused.value, draw=0.5, waits=waits_before)
        for waits_before in range(MOST_WAITS + 1)
    ]
    assert all(isinstance(wait, Snooze) and wait.counted and wait.delay_s <= 60 for wait in waits[:-1])
    assert isinstance(waits[-1], Retry), "a fault without an end becomes a failure"
    half_done = CallFailedError("cut", reason=kind, may_have_acted=True)
    half_done.idempotent = False
    assert isinstance(outcome_of_exception(half_done, draw=0.5), Retry)


async def test_call_with_an_attempt_that_may_have_left_is_sent() -> None:
    never, lost = NoResponse(False, "connect", "refused"), NoResponse(True, "reset", "cut off")
    for answers in ([never, lost, never, never], [lost, never, never, never], [answer(502), *[never] * 3]):
        with pytest.raises(CallFailedError) as failed:
            await World(answers).call(GET)
        assert failed.value.sent
    closed = LimitExceededError("no room", retry_after_s=40.0, reason="rate")
    with pytest.raises(LimitExceededError) as refused:
        await World([never, closed]).call(POST)
    assert refused.value is closed, "nothing was sent: it is a refusal"


async def test_a_full_pool_of_ours_is_no_fault_and_gives_back_what_was_taken() -> None:
    world = World([NoResponse(False, "pool", "no free connection in time"), answer(200)])
    assert (await world.call(POST)).attempts == 2
    assert world.admissions[0].health is DestinationHealth.NEUTRAL


AWAY = DependencyUnavailableError("the database is away")
PUT = replace(GET, method="PUT", body=b"{}")


async def streamed(world: World) -> None:
    async with world.pipeline().stream(PUT):
        pytest.fail("it failed")


@pytest.mark.parametrize(
    "error", [AWAY, NotFoundError("it is gone"), InvalidConfigError("two limits of a name")], ids=repr
)
async def test_sent_call_stays_sent_when_its_retry_is_prevented(error: FairleadError) -> None:
    """A gate that closes with its process, a database that goes away, a connection that is removed."""
    for world in (World([answer(500), error]), World([answer(500), answer(401)], no_newer=error)):
        answers = [*world.answers]
        for call in (world.call(PUT), streamed(world)):
            world.answers[:] = answers
            with pytest.raises(CallFailedError, match=error.message) as failed:
                await call
            assert (failed.value.sent, failed.value.__cause__) == (True, error)
            assert failed.value.may_have_acted
            assert world.events[-2].then == "fail"
            world.events.clear()


async def test_error_that_prevents_a_replay_is_the_cause_of_the_failure() -> None:
    for error, category in ((AWAY, "transient_network"), (NotFoundError("it is gone"), "permanent_request")):
        with pytest.raises(CallFailedError) as failed:
            await World([answer(401), error]).call(POST)
        assert (failed.value.category, failed.value.may_have_acted) == (category, False)


async def test_error_before_the_first_attempt_is_raised_and_recorded() -> None:
    class NoToken(World):
        async def token(self, key: ConnectionKey) -> PublicToken:
            raise AWAY

    for world in (NoToken([answer(200)]), World([AWAY]), World([AWAY])):
        with pytest.raises(DependencyUnavailableError) as refused:
            await (streamed(world) if world.answers == [AWAY] else world.call(PUT))
        assert refused.value is AWAY
        (record,) = world.events
        record_fields = (record.then, record.attempt, record.code, record.category)
        assert record_fields == ("refused", 0, "dependency_unavailable", "transient_network")


async def test_a_second_try_that_cannot_be_put_into_http_is_the_failure_of_the_first() -> None:
    class OddToken(World):
        async def send(self, request: HttpRequest) -> HttpResponse | NoResponse:
            if self.sent:
                raise InvalidInputError("a header of a call has a character that HTTP does not allow")
            return await super().send(request)

    for send_call in (lambda world: world.call(PUT), streamed):
        world = OddToken([answer(500), answer(200)])
        with pytest.raises(CallFailedError, match="character") as failed:
            await send_call(world)
        assert isinstance(failed.value.__cause__, InvalidInputError)
        assert world.admissions[1].actual_cost == {0: 0.0}, "it was not sent again"
