"""Telling subscribers and the webhook: each once, neither in the other's way (T12)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from fairlead.engine.jobs.executor import Executor
from fairlead.engine.ports import Completed, Discarded, Job, Outcome, Rescheduled, Webhook
from fairlead.engine.tokens.notification_jobs import EXPIRES_IN_S, ONCE_FOR_S, WEBHOOK_RETRY, NotificationJobs
from fairlead.errors import RequestRejectedError, TransientFailureError
from fairlead.policy.failures.category import Category, Failure
from fairlead.policy.failures.retry import RetryAt, decide
from fairlead.policy.jobs.kinds import NEEDS_REAUTH, TOKEN_EXPIRING, WEBHOOK
from fairlead.testing._kit.clock import ManualClock
from fairlead.testing._kit.ids import CountedIds
from tests.support.engine import Recorder, a_job, half, new_job
from tests.support.process import Fleet

Event = Mapping[str, Any]

ARGS = {
    "event_id": "0192f0c1-2b3c-7def-8abc-0123456789ab",
    "occurred_at": "2026-01-02T03:04:05+00:00",
    "connection_id": str(UUID(int=9)),
    "account": "default",
    "reason": "invalid_grant",
    "link": "https://app.example.com/reconnect",
}
LOST = {
    "event": "needs_reauth",
    **ARGS,
    "tenant": "acme",
    "provider": "xero",
    "dead_letter_id": None,
    "last": False,
}


class NoLookUp:
    """These notices carry all they need; those of dead letters are tested over a real store."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"nothing asks for {name} here")


class Outbox:
    """A sender whose receiver fails as often as a test says."""

    def __init__(self, *failures: Exception) -> None:
        self.sent: list[Webhook] = []
        self._failures = list(failures)

    async def send(self, webhook: Webhook) -> None:
        self.sent.append(webhook)
        if self._failures:
            raise self._failures.pop(0)


def notices(
    fleet: Fleet, *subscribers: Any, outbox: Outbox | None = None, event: str = "needs_reauth"
) -> NotificationJobs:
    return NotificationJobs(
        {event: subscribers},
        outbox,
        credentials=NoLookUp(),  # type: ignore[arg-type]
        jobs=fleet.jobs,
        ids=CountedIds(7_000_000),
        reauth_link=lambda key, connection_id: None,
    )


def notice(kind: str = NEEDS_REAUTH, **args: Any) -> Job:
    return a_job(kind, provider="xero", group_key="g", args=ARGS | args)


async def run(notifications: NotificationJobs, job: Job) -> Outcome:
    """One run of *job*, as a worker makes it."""
    doer = Executor(
        notifications.handlers(), clock=ManualClock(), draw=half, ids=CountedIds(), emit=Recorder()
    )
    return await doer.run(job)


async def webhook_jobs(fleet: Fleet) -> list[Job]:
    return await fleet.claim(WEBHOOK)


async def test_notification_without_a_subscriber_completes(fleet: Fleet) -> None:
    outcome = await run(notices(fleet), notice())
    assert isinstance(outcome, Completed)
    assert outcome.result == {"delivered": "nobody"}
    assert fleet.database.jobs == {}


async def test_subscribers_get_the_event(fleet: Fleet) -> None:
    received: list[tuple[str, Event]] = []

    async def waits(event: Event) -> None:
        await asyncio.sleep(0)
        received.append(("async", event))

    def blocks(event: Event) -> None:
        assert threading.current_thread() is not threading.main_thread()
        received.append(("sync", event))

    class Awaits:
        def __call__(self, event: Event) -> object:
            return waits(event)

    outcome = await run(notices(fleet, waits, blocks, Awaits()), notice())
    assert isinstance(outcome, Completed)
    assert sorted(kind for kind, _ in received) == ["async", "async", "sync"]
    assert all(event == LOST for _, event in received)


async def test_each_gets_a_copy_of_its_own(fleet: Fleet) -> None:
    received: list[Event] = []

    async def spoils(event: dict[str, Any]) -> None:
        event.clear()

    async def reads(event: Event) -> None:
        received.append(event)

    await run(notices(fleet, spoils, reads), notice())
    assert received == [LOST]


async def test_an_expiring_token_says_when(fleet: Fleet) -> None:
    received: list[Event] = []
    notifications = notices(fleet, received.append, event="token_expiring")
    await run(notifications, notice(TOKEN_EXPIRING, expires_at="2026-01-03T00:00:00+00:00"))
    assert received[0]["event"] == "token_expiring"
    assert received[0]["expires_at"] == "2026-01-03T00:00:00+00:00"
    assert "dead_letter_id" not in received[0]


async def test_without_an_id_of_its_own_an_event_goes_by_its_job(fleet: Fleet) -> None:
    received: list[Event] = []
    job = a_job(NEEDS_REAUTH, args={})
    await run(notices(fleet, received.append), job)
    assert (received[0]["event_id"], received[0]["occurred_at"]) == (
        str(job.job_id),
        job.created_at.isoformat(),
    )


# ---- one fails -----------------------------------------------------------------------------------


async def test_failed_subscriber_alone_is_called_again(fleet: Fleet) -> None:
    calls: list[str] = []

    async def fails_once(event: Event) -> None:
        calls.append("bad")
        if calls.count("bad") == 1:
            raise ValueError("not today")

    async def works(event: Event) -> None:
        calls.append("good")

    outbox = Outbox()
    notifications, job = notices(fleet, fails_once, works, outbox=outbox), notice()
    first = await run(notifications, job)
    assert isinstance(first, Rescheduled)
    assert first.failure is not None
    assert (first.failure.category, first.failure.code) == ("transient_network", "subscriber_failed")
    assert "1 of 2 subscribers failed, first: ValueError: not today" in first.failure.reason
    assert isinstance(await run(notifications, job), Completed)
    assert sorted(calls) == ["bad", "bad", "good"]
    assert len(await webhook_jobs(fleet)) == 1, "the webhook is not sent twice"


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), ValueError("x")], ids=repr)
@pytest.mark.parametrize("blocking", [True, False])
async def test_no_subscriber_ends_more_than_itself(
    fleet: Fleet, error: BaseException, blocking: bool
) -> None:
    received: list[Event] = []

    async def bad(event: Event) -> None:
        raise error

    def bad_thread(event: Event) -> None:
        raise error

    outcome = await run(notices(fleet, bad_thread if blocking else bad, received.append), notice())
    assert isinstance(outcome, Rescheduled)
    assert received == [LOST]


async def test_hanging_subscriber_delays_no_other(fleet: Fleet) -> None:
    delivered = asyncio.Event()
    clock = ManualClock()

    async def hangs(event: Event) -> None:
        await asyncio.Event().wait()

    async def hears(event: Event) -> None:
        delivered.set()

    doer = Executor(
        notices(fleet, hangs, hears).handlers(), clock=clock, draw=half, ids=CountedIds(), emit=Recorder()
    )
    running = asyncio.create_task(doer.run(notice()))
    await delivered.wait()
    await clock.advance(60)
    outcome = await running
    assert isinstance(outcome, Rescheduled)
    assert outcome.failure is not None
    assert outcome.failure.code == "job_timeout"


async def test_a_subscriber_cannot_start_a_notice_about_its_own_notice(fleet: Fleet) -> None:
    """A permanent_auth dead letter would enqueue another notice, and so on for ever."""

    async def misuses(event: Event) -> None:
        raise RequestRejectedError("no", category="permanent_auth")

    outcome = await run(notices(fleet, misuses), notice())
    assert isinstance(outcome, Rescheduled)


# ---- the webhook ---------------------------------------------------------------------------------


async def test_the_webhook_is_a_job_of_its_own(fleet: Fleet) -> None:
    outbox = Outbox()
    notifications = notices(fleet, outbox=outbox)
    assert isinstance(await run(notifications, notice()), Completed)
    assert outbox.sent == []
    (row,) = fleet.database.jobs.values()
    assert (row.kind, row.tenant_id, row.provider, row.group_key) == (WEBHOOK, "acme", "xero", "g")
    assert (row.unique_key, row.args["connection_id"]) == (ARGS["event_id"], ARGS["connection_id"])
    (job,) = await webhook_jobs(fleet)
    assert isinstance(await run(notifications, job), Completed)
    (sent,) = outbox.sent
    assert (sent.event_id, sent.tenant, sent.provider) == (ARGS["event_id"], "acme", "xero")
    assert json.loads(sent.body) == {"type": "needs_reauth", "timestamp": ARGS["occurred_at"], "data": LOST}


async def test_every_try_sends_the_same_bytes_under_the_same_id(fleet: Fleet) -> None:
    outbox = Outbox(TransientFailureError("503", retry_after_s=30))
    notifications = notices(fleet, outbox=outbox)
    await run(notifications, notice())
    (job,) = await webhook_jobs(fleet)
    first = await run(notifications, job)
    assert isinstance(first, Rescheduled)
    assert first.delay_s >= 30
    assert isinstance(await run(notifications, job), Completed)
    assert outbox.sent[0] == outbox.sent[1]


async def test_a_receiver_that_refuses_ends_in_a_dead_letter(fleet: Fleet) -> None:
    notifications = notices(fleet, outbox=Outbox(RequestRejectedError("410")))
    await run(notifications, notice())
    (job,) = await webhook_jobs(fleet)
    outcome = await run(notifications, job)
    assert isinstance(outcome, Discarded)
    assert outcome.failure.category == "permanent_request"
    assert outcome.connection_id == UUID(int=9)


async def test_a_replayed_notice_enqueues_no_second_webhook(fleet: Fleet) -> None:
    notifications = notices(fleet, outbox=Outbox())
    await run(notifications, notice())
    (job,) = await webhook_jobs(fleet)
    await fleet.jobs.acknowledge([await run(notifications, job)])
    await fleet.advance(ONCE_FOR_S - 1)
    await run(
        notifications,
        notice(),
    )
    assert await webhook_jobs(fleet) == []


async def test_a_process_without_a_webhook_leaves_its_jobs_to_others(fleet: Fleet) -> None:
    """They wait for a process that has one, and end as dead letters if none comes: never in silence."""
    assert [handler.kind for handler in notices(fleet).handlers()] == [NEEDS_REAUTH, TOKEN_EXPIRING]
    await run(notices(fleet, outbox=Outbox()), notice())
    (row,) = fleet.database.jobs.values()
    assert (row.expires_at - row.created_at).total_seconds() == EXPIRES_IN_S


def test_a_receiver_that_is_away_is_asked_for_hours() -> None:
    failure = Failure(Category.TRANSIENT_SERVER, "transient_failure", "503")
    waited_s, streaks, attempt = 0.0, {}, 1
    while isinstance(decision := decide(failure, streaks, attempt, draw=0.5, policy=WEBHOOK_RETRY), RetryAt):
        waited_s, streaks, attempt = waited_s + decision.delay_s, decision.streaks, attempt + 1
    assert attempt == 14
    assert 8 * 3600 < waited_s < 11 * 3600


async def test_notices_are_what_users_can_build_on_a_worker(fleet: Fleet) -> None:
    """The whole way with a real worker: notice, retry, webhook."""
    received: list[Event] = []
    outbox = Outbox(TransientFailureError("503"))
    notification_jobs = notices(fleet, received.append, outbox=outbox)
    await fleet.start(*notification_jobs.handlers())
    await fleet.enqueue(new_job(NEEDS_REAUTH, provider="xero", args=ARGS))
    while len(outbox.sent) < 2:
        await fleet.advance(1)
    assert len(received) == 1
    assert len({sent.event_id for sent in outbox.sent}) == 1
