"""What is told of each attempt of a call, and of each refusal (C11)."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, fields, replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from fairlead.engine.calls.call_events import ALL_PER_S, SAMPLE, WARN_EVERY_S
from fairlead.engine.calls.unclassified import INTERVAL_S, UnclassifiedCounter
from fairlead.engine.jobs.handler import JobContext, current_job
from fairlead.engine.limits.admission import Admission
from fairlead.engine.ports import ConnectionKey, HttpRequest, HttpResponse, NoResponse
from fairlead.errors import (
    CallFailedError,
    LimiterUnavailableError,
    LimitExceededError,
    ReauthRequiredError,
    SlotLostError,
)
from fairlead.events import CallAttempted, CallsFailed, ResponsesUnclassified
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.tokens.token import PublicToken
from fairlead.testing import ManualClock
from tests.unit.engine.test_pipeline import GET, POST, World, answer

CLOSED = LimitExceededError("no room", retry_after_s=40.0, reason="rate")


def attempts(world: World) -> list[CallAttempted]:
    return [event for event in world.events if isinstance(event, CallAttempted)]


def failures(world: World) -> list[CallsFailed]:
    return [event for event in world.events if isinstance(event, CallsFailed)]


class Timed(World):
    """Each answer takes 2 s."""

    async def send(self, request: HttpRequest) -> HttpResponse | NoResponse:
        response = await super().send(request)
        await self.clock.sleep(2.0)
        return response


async def test_a_record_says_who_what_which_gate_and_why() -> None:
    job: Any = SimpleNamespace(attempt=1, job_id=UUID(int=9))
    world = World([answer(404, b'{"error": {"code": "gone_item", "message": "no"}}')])
    running = current_job.set(JobContext(job, lambda: 60.0))
    try:
        with pytest.raises(CallFailedError):
            await world.call(GET)
    finally:
        current_job.reset(running)
    (record,) = attempts(world)
    assert (record.job_id, record.gate, record.code) == (UUID(int=9), "off", "http_404")
    assert (record.status, record.then, record.unclassified, record.stands_for) == (404, "fail", False, 1)


async def test_response_without_a_rule_is_unclassified() -> None:
    world = World([answer(418, b"{}")], settings={"max_retries": 0})
    with pytest.raises(CallFailedError) as failed:
        await world.call(GET)
    assert failed.value.verdict.unclassified
    assert attempts(world)[0].unclassified
    assert failures(world)[0].unclassified


async def test_a_stream_that_breaks_off_is_told_twice() -> None:
    world = Timed([answer(200, b"broken")])

    async def read() -> None:
        async with world.pipeline().stream(GET) as stream:
            async for _ in stream:
                await world.clock.sleep(3.0)

    with pytest.raises(CallFailedError):
        await read()
    records = [(record.then, record.sent_s, record.waited_s, record.code) for record in attempts(world)]
    assert records == [("return", 2.0, 0.0, ""), ("fail", 5.0, 0.0, "reset")]
    assert len(failures(world)) == 1


async def test_the_time_under_way_is_that_of_all_attempts() -> None:
    world = Timed([answer(429, retry_after="4"), answer(200)])
    response = await world.call(GET)
    first, second = attempts(world)
    assert (first.sent_s, first.waited_s, second.sent_s) == (2.0, 0.0, 4.0)
    assert second.waited_s == first.delay_s == response.waited_s


class Losing(World):
    """The slot of each call is lost while it runs."""

    def release_soon(self, admission: Admission, error: BaseException | None) -> SlotLostError | None:
        super().release_soon(admission, error)
        return SlotLostError("lost")


async def test_a_slot_that_is_lost_leaves_a_record() -> None:
    called, streamed = Losing([answer(200)]), Losing([answer(200)])
    with pytest.raises(SlotLostError):
        await called.call(GET)
    with pytest.raises(SlotLostError):
        async with streamed.pipeline().stream(GET):
            pass
    for world in (called, streamed):
        last = attempts(world)[-1]
        assert (last.then, last.rule, last.code, last.attempt) == ("fail", "slot lost", "slot_lost", 1)


async def test_a_slot_that_another_call_lost_is_none_of_this_ones() -> None:
    world = World([answer(200)])
    with pytest.raises(SlotLostError):
        async with world.pipeline().stream(GET):
            raise SlotLostError("another's")
    assert [record.then for record in attempts(world)] == ["return"]


async def test_a_refusal_leaves_a_record_and_says_of_what_gate() -> None:
    world = World([CLOSED])
    with pytest.raises(LimitExceededError):
        await world.call(GET)
    (record,) = attempts(world)
    assert (record.then, record.attempt, record.gate, record.delay_s) == ("refused", 0, "rate", 40.0)
    assert failures(world) == []
    world = World([LimiterUnavailableError("no Redis")])
    with pytest.raises(LimiterUnavailableError):
        await world.call(GET)
    assert (attempts(world)[0].gate, attempts(world)[0].code) == ("", "limiter_unavailable")


async def test_a_refusal_after_an_attempt_is_how_the_call_failed() -> None:
    for answers, error in (
        ([answer(429, retry_after="1"), CLOSED], None),
        ([answer(401)], ReauthRequiredError("the grant is gone")),
    ):
        world = World([*answers], no_newer=error)
        with pytest.raises((CallFailedError, ReauthRequiredError)):
            await world.call(GET)
        assert attempts(world)[-1].then == "fail"
        assert len(failures(world)) == 1


async def test_a_failed_call_is_reported_with_its_failure_and_not_with_what_prevented_a_retry() -> None:
    world = World([answer(500), CLOSED])
    with pytest.raises(CallFailedError):
        await world.call(GET)
    assert attempts(world)[-1].code == "rate"
    assert [(event.code, event.category) for event in failures(world)] == [("http_500", "transient_server")]


async def test_unsent_call_that_is_refused_is_no_failed_call() -> None:
    world = World([NoResponse(False, "connect", "refused"), CLOSED])
    with pytest.raises(LimitExceededError):
        await world.call(GET)
    assert [(record.then, record.gate) for record in attempts(world)] == [
        ("retry", "off"),
        ("refused", "rate"),
    ]
    assert failures(world) == []


@dataclass
class Cut(World):
    """Its caller is cancelled *after_s* after *hangs* has begun."""

    after_s: float = 3.0

    clock: ManualClock = field(default_factory=ManualClock)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def hangs(self) -> Any:
        self.begun.set()
        await asyncio.Event().wait()

    async def read(self) -> None:
        async with self.pipeline().stream(POST):
            await self.hangs()

    async def cancelled(self, *, streamed: bool) -> None:
        task = asyncio.create_task(self.read() if streamed else self.call(POST))
        await self.begun.wait()
        await self.clock.advance(self.after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class CutUnderWay(Cut):
    async def send(self, request: HttpRequest) -> HttpResponse | NoResponse:
        await super().send(request)
        return await self.hangs()  # type: ignore[no-any-return]


class CutBefore(Cut):
    async def token(self, key: ConnectionKey) -> PublicToken:
        return await self.hangs()  # type: ignore[no-any-return]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_call_that_is_cancelled_under_way_leaves_a_record(streamed: bool) -> None:
    """What became of it nobody knows, so somebody may want to look; nothing need be told loud."""
    world = CutUnderWay([answer(200)])
    await world.cancelled(streamed=streamed)
    (record,) = attempts(world)
    assert (record.then, record.rule, record.code, record.attempt) == ("fail", "cancelled", "cancelled", 1)
    assert (record.sent_s, record.status, record.category, failures(world)) == (3.0, None, None, [])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("after_s", "health"), [(3.0, DestinationHealth.NEUTRAL), (6.0, DestinationHealth.UNHEALTHY)]
)
async def test_a_call_that_is_cancelled_after_a_fair_trial_counts_against_its_destination(
    after_s: float, health: DestinationHealth, streamed: bool
) -> None:
    """R33. Else a vendor that hangs never opens the breaker where callers have timeouts of their own."""
    world = CutUnderWay([answer(200)], after_s=after_s)
    await world.cancelled(streamed=streamed)
    assert [admission.health for admission in world.admissions] == [health]


@pytest.mark.parametrize(("deadline_s", "keeps_slot"), [(60.0, True), (0.2, False)])
async def test_a_call_that_was_not_answered_in_time_keeps_its_slot(
    deadline_s: float, keeps_slot: bool
) -> None:
    """R30. The vendor may be at work on it still; one that was hurried says nothing of that."""
    world = World([NoResponse(True, "timeout", "no complete response before the deadline")])
    with pytest.raises(CallFailedError):
        await world.call(replace(POST, deadline_s=deadline_s))
    assert [admission.keeps_slot for admission in world.admissions] == [keeps_slot]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_call_that_is_cancelled_before_it_is_sent_leaves_none(streamed: bool) -> None:
    world = CutBefore([answer(200)])
    await world.cancelled(streamed=streamed)
    assert world.events == []


async def test_closed_stream_is_recorded_as_a_response() -> None:
    world = Cut([answer(200)])
    await world.cancelled(streamed=True)
    assert [record.then for record in attempts(world)] == ["return"]


async def test_under_load_successes_and_refusals_are_sampled_and_failures_are_not() -> None:
    more = 10 * SAMPLE
    world = World([answer(200)] * (ALL_PER_S + more) + [answer(404)] * 3)
    pipeline = world.pipeline()
    for _ in range(ALL_PER_S + more):
        await pipeline.send(GET)
    assert len(world.events) == ALL_PER_S + more // SAMPLE
    assert sum(record.stands_for for record in attempts(world)) == ALL_PER_S + more
    for _ in range(3):
        with pytest.raises(CallFailedError):
            await pipeline.send(GET)
    assert [record.stands_for for record in attempts(world)[-3:]] == [1, 1, 1]
    world.events.clear()
    await world.clock.advance(1.0)
    world.answers = [answer(200)]
    await pipeline.send(GET)
    assert len(world.events) == 1


async def test_that_calls_fail_is_told_loud_and_not_too_often() -> None:
    world = World([answer(404)] * 12 + [answer(403)])
    pipeline = world.pipeline()

    async def fails() -> None:
        with pytest.raises(CallFailedError):
            await pipeline.send(GET)

    for _ in range(10):
        await fails()
    assert [(event.rule, event.failed) for event in failures(world)] == [("status 404", 1)]
    await world.clock.advance(WARN_EVERY_S)
    await fails()
    assert [event.failed for event in failures(world)] == [1, 10]
    world.answers = [answer(403)]
    await fails()
    assert failures(world)[-1].failed == 1, "another rule is told by itself"
    assert CallsFailed.level == "warning"


def unclassified(world: World) -> list[tuple[str, int | None, str, int, int]]:
    events = (event for event in world.events if isinstance(event, ResponsesUnclassified))
    return [(event.provider, event.status, event.code, event.responses, event.total) for event in events]


async def test_answers_that_no_rule_knows_are_counted_by_provider() -> None:
    world = World([answer(418)] * 5 + [answer(404)], settings={"max_retries": 0})
    pipeline = world.pipeline()

    async def fails() -> None:
        with pytest.raises(CallFailedError):
            await pipeline.send(GET)

    for _ in range(4):
        await fails()
    provider = GET.key.provider
    assert unclassified(world) == [(provider, 418, "http_418", 1, 1)], "told soon, and not too often"
    await world.clock.advance(INTERVAL_S)
    await fails()
    assert unclassified(world)[1:] == [(provider, 418, "http_418", 4, 5)]
    await world.clock.advance(INTERVAL_S)
    await fails()
    assert len(unclassified(world)) == 2, "a rule knows a 404"
    assert ResponsesUnclassified.level == "warning"


async def test_suppressed_count_is_emitted_with_a_later_attempt() -> None:
    world = World([answer(418), answer(418), answer(418), answer(200), answer(200)])
    pipeline = world.pipeline()
    await pipeline.send(GET)
    assert sum(answers for *_, answers, _ in unclassified(world)) == 1
    await world.clock.advance(INTERVAL_S)
    await pipeline.send(GET)
    assert [(answers, total) for *_, answers, total in unclassified(world)] == [(1, 1), (2, 3)]


async def test_the_count_is_whole_where_records_are_sampled() -> None:
    many = ALL_PER_S + SAMPLE + 7
    world = World([answer(207, b"{}")] * many + [answer(200)])
    pipeline = world.pipeline()
    for _ in range(many):
        await pipeline.send(GET)
    assert len(attempts(world)) < many
    await world.clock.advance(INTERVAL_S)
    await pipeline.send(GET)
    assert [(answers, total) for *_, answers, total in unclassified(world)] == [(1, 1), (many - 1, many)]


def test_each_provider_has_a_count_of_its_own_and_no_tenant_has_one() -> None:
    events: list[Any] = []
    count = UnclassifiedCounter(events.append)
    for provider in ("shopify", "stripe", "shopify"):
        count.count(provider, 418, "http_418")
    count.emit_due(100.0)
    assert [(event.provider, event.responses) for event in events] == [("shopify", 2), ("stripe", 1)]
    count.count("stripe", 409, "busy")
    assert count.due_mono == 100.0 + INTERVAL_S
    count.emit_due(105.0)
    assert (len(events), count.due_mono) == (2, 100.0 + INTERVAL_S), "not yet, and not forgotten"
    count.emit_due(count.due_mono)
    assert events[-1] == ResponsesUnclassified("stripe", 409, "busy", 1, 2)
    assert count.due_mono == math.inf
    assert not {"tenant", "account", "host"} & {
        each_field.name for each_field in fields(ResponsesUnclassified)
    }
