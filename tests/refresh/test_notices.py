"""From a grant that is gone to its customer: one notice per loss, on real stores and over the wire (T12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from aiohttp import web

from fairlead._core.secret import Secret
from fairlead.adapters.http import AddressPolicy
from fairlead.adapters.http.webhook import AiohttpWebhookSender
from fairlead.adapters.local.system import SystemClock, SystemIds
from fairlead.adapters.postgres.dead_letters import PostgresDeadLetterStore
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.engine.jobs.dead_letter import DeadLetterProcessor, replay_job
from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import Cancelled, ClaimFilter, Completed, NewJob, Outcome, Rescheduled
from fairlead.engine.tokens.notification_jobs import NotificationJobs
from fairlead.engine.tokens.refresh_jobs import TokenJobs
from fairlead.errors import ReauthRequiredError
from fairlead.policy.jobs.job import RequireReauth
from fairlead.policy.jobs.kinds import REFRESH
from fairlead.testing.webhook import verify
from tests.support.passing_time import pass_time
from tests.support.refresher import FAST, Refresher
from tests.support.rows import rows

STRICT = "strict"
SECRET = "whsec_" + "QUJD" * 8
DAY_S = 86_400.0


@dataclass
class Desk:
    """Everything between a loss and the customer. *heard* are the events of a subscriber,
    *received* those of the webhook once *answers* that refuse are used up."""

    fl: Refresher
    jobs: PostgresJobStore
    entries: PostgresDeadLetterStore
    executor: Executor
    processor: DeadLetterProcessor
    received: list[dict[str, Any]]
    answers: list[int]
    heard: list[dict[str, Any]] = field(default_factory=list)

    async def enqueue(self, kind: str, **fields: Any) -> None:
        job = NewJob(SystemIds().uuid7(), kind, "acme", provider=STRICT, **fields)
        assert (await self.jobs.enqueue([job]))[0].inserted

    async def work(self) -> list[Outcome]:
        """Run all jobs that are due, and those that they enqueue."""
        outcomes: list[Outcome] = []
        while claimed := await self.jobs.claim(ClaimFilter(), 100, self.fl.session_id):
            ended = [await self.executor.run(job) for job in claimed]
            assert len(await self.jobs.acknowledge(ended)) == len(claimed)
            outcomes += ended
        return outcomes

    async def process(self) -> dict[str, int]:
        return await self.processor.run(JobContext(None, lambda: 300.0))  # type: ignore[arg-type]

    async def lose(self, issuer: Any) -> UUID:
        """A connection whose grant its customer took back, found out by a caller of this process."""
        connection_id = await self.fl.connect(issuer, STRICT)
        issuer.revoke(STRICT, "acme")
        with pytest.raises(ReauthRequiredError):
            await self.fl.coordinator.refresh(connection_id, 1)
        return connection_id


@pytest.fixture
async def webhook() -> AsyncIterator[tuple[str, list[dict[str, Any]], list[int]]]:
    received: list[dict[str, Any]] = []
    answers: list[int] = []

    async def receive(request: web.Request) -> web.Response:
        if answers:
            return web.Response(status=answers.pop(0))
        received.append(verify(SECRET, request.headers, await request.read()))
        return web.Response(status=204)

    application = web.Application()
    application.router.add_post("/hooks", receive)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield f"http://127.0.0.1:{port}/hooks", received, answers
    await runner.cleanup()


@pytest.fixture
async def desk(fl: Refresher, database: Any, webhook: Any) -> AsyncIterator[Desk]:
    url, received, answers = webhook
    posted: list[dict[str, Any]] = []
    ids = SystemIds()
    jobs, entries = PostgresJobStore(database, ids), PostgresDeadLetterStore(database)
    sender = AiohttpWebhookSender(url, Secret(SECRET), policy=AddressPolicy(allow_private=True))
    notifications = NotificationJobs(
        {"needs_reauth": [posted.append]},
        sender,
        credentials=fl.deps.store,
        jobs=jobs,
        ids=ids,
        reauth_link=fl.deps.reauth_link,
    )
    tokens = TokenJobs(fl.deps, FAST, fl.coordinator, fl.unknown, jobs)
    handlers = [*notifications.handlers(), *tokens.handlers(), *_handlers_of_a_user()]
    emit = fl.events.append
    executor = Executor(handlers, clock=SystemClock(), draw=lambda: 0.0, ids=ids, emit=emit)
    processor = DeadLetterProcessor(entries, jobs, ids=ids, draw=lambda: 0.0, emit=emit)
    yield Desk(fl, jobs, entries, executor, processor, received, answers, posted)
    await jobs.close()
    await sender.close()


def _handlers_of_a_user() -> list[Handler]:
    async def meets_the_loss(context: JobContext) -> object:
        raise ReauthRequiredError("the grant is gone")  # as ``fl.token`` does

    async def judges_by_itself(context: JobContext) -> object:
        return RequireReauth("the customer took a permission away")

    return [Handler("orders.sync", meets_the_loss), Handler("orders.check", judges_by_itself)]


async def test_a_loss_reaches_subscriber_and_webhook_once(desk: Desk, issuer: Any, database: Any) -> None:
    connection_id = await desk.lose(issuer)
    (notice,) = await rows(database, "SELECT job_id, created_at FROM job")
    await desk.work()
    (event,) = desk.heard
    assert event == {
        "event": "needs_reauth",
        "event_id": str(notice["job_id"]),
        "occurred_at": event["occurred_at"],
        "tenant": "acme",
        "provider": STRICT,
        "account": "default",
        "connection_id": str(connection_id),
        "reason": "invalid_grant",
        "link": f"https://example.test/reconnect/{connection_id}",
        "dead_letter_id": None,
        "last": False,
    }
    assert [received["data"] for received in desk.received] == [event]
    assert event["occurred_at"].startswith(str(notice["created_at"].date()))


async def test_a_refresh_job_that_died_of_it_adds_no_notice(desk: Desk, issuer: Any, database: Any) -> None:
    connection_id = await desk.fl.connect(issuer, STRICT)
    issuer.revoke(STRICT, "acme")
    about = {"connection_id": str(connection_id), "generation": 1}
    await desk.enqueue(REFRESH, args=about, unique_key=str(connection_id))
    await desk.work()
    assert await desk.process() == {"reauth_started": 1}
    await desk.work()
    assert (len(desk.heard), len(desk.received)) == (1, 1)
    await pass_time(database, 6 * DAY_S)
    assert await desk.process() == {"last_notice": 1}
    await desk.work()
    first, last = desk.heard
    assert (first["last"], last["last"]) == (False, True)
    assert (last["connection_id"], last["link"]) == (first["connection_id"], first["link"])
    assert last["dead_letter_id"]
    assert last["event_id"] != first["event_id"]
    assert len(desk.received) == 2


@pytest.mark.parametrize("named", [True, False])
async def test_other_jobs_that_met_the_loss_add_none(desk: Desk, issuer: Any, named: bool) -> None:
    connection_id = await desk.lose(issuer)
    for number in range(3):
        about = {"connection_id": str(connection_id)} if named else {}
        await desk.enqueue("orders.sync", args={"order": number, **about})
    outcomes = await desk.work()
    assert [type(outcome) for outcome in outcomes].count(Rescheduled) == 3, "they wait for the next grant"
    assert await desk.process() == {"reauth_started": 1}, "the one of the loss itself"
    assert await desk.work() == []
    assert (len(desk.heard), len(desk.received)) == (1, 1)


async def test_a_job_that_judges_by_itself_is_told(desk: Desk, issuer: Any) -> None:
    """Its connection is alive as far as fairlead knows, so nobody else tells it."""
    connection_id = await desk.fl.connect(issuer, STRICT)
    await desk.enqueue("orders.check", args={"connection_id": str(connection_id)})
    await desk.work()
    assert await desk.process() == {"reauth_started": 1}
    await desk.work()
    (event,) = desk.heard
    assert (event["reason"], event["account"]) == ("the customer took a permission away", "default")
    assert event["link"] == f"https://example.test/reconnect/{connection_id}"
    assert event["dead_letter_id"]


async def test_a_verdict_about_something_else_is_told_even_while_a_connection_is_lost(
    desk: Desk, issuer: Any
) -> None:
    await desk.lose(issuer)
    await desk.enqueue("orders.check")
    await desk.work()
    await desk.process()
    outcomes = await desk.work()
    assert any(isinstance(outcome, Completed) for outcome in outcomes)
    assert [event["reason"] for event in desk.heard] == [
        "invalid_grant",
        "the customer took a permission away",
    ]


async def test_revocation_on_purpose_asks_for_no_reconnect(desk: Desk, issuer: Any) -> None:
    connection_id = await desk.fl.connect(issuer, STRICT)
    await desk.fl.deps.store.revoke(
        connection_id, "acme", actor="test", reason="contract ended", audit_id=SystemIds().uuid7()
    )
    await desk.enqueue("orders.check", args={"connection_id": str(connection_id)})
    await desk.work()
    await desk.process()
    assert [type(outcome) for outcome in await desk.work()] == [Cancelled]
    assert (desk.heard, desk.received) == ([], [])


async def test_concurrent_finders_of_one_loss_tell_it_once(
    desk: Desk, peer: Refresher, issuer: Any, database: Any
) -> None:
    connection_id = await desk.fl.connect(issuer, STRICT)
    issuer.revoke(STRICT, "acme")
    finders: list[Callable[..., Any]] = [desk.fl.coordinator.refresh, peer.coordinator.refresh] * 3
    await asyncio.gather(*(find(connection_id, 1) for find in finders), return_exceptions=True)
    await desk.work()
    assert (len(desk.heard), len(desk.received)) == (1, 1)


async def test_a_webhook_that_was_refused_can_be_sent_again(desk: Desk, issuer: Any) -> None:
    await desk.lose(issuer)
    desk.answers.append(410)
    await desk.work()
    assert desk.received == []
    (entry,) = await desk.entries.search(
        status=None, category=None, tenant_id=None, kind="event.webhook", limit=10
    )
    assert (entry.kind, entry.category, entry.code) == (
        "event.webhook",
        "permanent_request",
        "request_rejected",
    )
    assert await desk.entries.redrive(entry.dead_letter_id, replay_job(entry, SystemIds()))
    await desk.work()
    assert [received["data"]["event_id"] for received in desk.received] == [desk.heard[0]["event_id"]]
    assert len(desk.heard) == 1
