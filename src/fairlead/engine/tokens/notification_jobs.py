"""The jobs that notify people: ``event.needs_reauth`` and ``event.token_expiring``. Spec: T12.

A notice job makes one event of what it was given, leaves its signed webhook to a job of its own
(``event.webhook``), and calls the subscribers of this process. So the two cannot hold each other up: a
subscriber that fails is called again with the notice job, a receiver that is away is asked again with the
webhook job, and neither repeats the other.

Both are at least once: a process may die between a delivery and its record. ``event_id`` (the id of the first
notice job, kept by its replays) is the same each time, in the event and as ``webhook-id``; go by it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from uuid import UUID

from fairlead._core.ids import Ids
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import (
    ConnectionKey,
    Credential,
    CredentialStore,
    JobStore,
    Json,
    NewJob,
    Webhook,
    WebhookSender,
)
from fairlead.policy.failures.backoff import Jitter
from fairlead.policy.failures.category import Category, Failure
from fairlead.policy.failures.retry import RetryPolicy
from fairlead.policy.jobs.job import Cancel, Complete, Outcome, Priority, Retry
from fairlead.policy.jobs.kinds import NEEDS_REAUTH, TOKEN_EXPIRING, WEBHOOK
from fairlead.policy.reasons.job_reasons import SUBSCRIBER_FAILED
from fairlead.policy.text.safe import safe_text

WEBHOOK_RETRY = RetryPolicy.uniform(13, base_s=5.0, cap_s=6 * 3600.0, jitter=Jitter.EQUAL)
"""A receiver that is away is asked for up to 11 hours: 5 s, 10 s, 20 s and so on."""
ONCE_FOR_S = 3 * 3600.0
"""A webhook job's unique key outlives its end for so long: longer than its notice is retried and replayed."""
EXPIRES_IN_S = 3 * 86_400.0
"""Where no process has a webhook set any more, its jobs wait for one so long, then are dead letters."""

_TIMEOUT_S = 60.0
_WEBHOOK_TIMEOUT_S = 30.0
_REMEMBERED = 1024

Subscriber = Callable[[Mapping[str, Json]], object]
"""Called with an event; may be a coroutine function. Other functions run in a thread, so they may block."""


class NotificationJobs:
    """Delivers events to *subscribers* (by event name) and, where there is a *webhook*, to its receiver."""

    def __init__(
        self,
        subscribers: Mapping[str, Sequence[Subscriber]],
        webhook: WebhookSender | None,
        *,
        credentials: CredentialStore,
        jobs: JobStore,
        ids: Ids,
        reauth_link: Callable[[ConnectionKey, UUID], str | None],
    ) -> None:
        self._subscribers = subscribers
        self._webhook = webhook
        self._credentials = credentials
        self._jobs = jobs
        self._ids = ids
        self._reauth_link = reauth_link
        self._deliveries = _Deliveries()

    def handlers(self) -> list[Handler]:
        """Return the handlers for a worker; the kind ``event.webhook`` only if a receiver is set."""
        handlers = [
            Handler(NEEDS_REAUTH, self.needs_reauth, timeout_s=_TIMEOUT_S),
            Handler(TOKEN_EXPIRING, self.token_expiring, timeout_s=_TIMEOUT_S),
        ]
        if self._webhook is not None:
            post = partial(_post, self._webhook)
            handlers.append(Handler(WEBHOOK, post, timeout_s=_WEBHOOK_TIMEOUT_S, retry=WEBHOOK_RETRY))
        return handlers

    async def needs_reauth(self, context: JobContext) -> Outcome:
        """Notify that a connection needs re-authorisation, once for each loss."""
        about = dict(context.args)
        if about.get("dead_letter_id"):
            credential = await self._connection_behind(context)
            if credential is not None:
                if credential.state == "revoked":
                    return Cancel("the connection was revoked")
                if credential.state == "needs_reauth" and not about.get("last"):
                    return Cancel("the notice of the connection itself tells it")
                about |= self._connection_fields(credential)
        return await self._deliver(context, _event("needs_reauth", context, about))

    async def token_expiring(self, context: JobContext) -> Outcome:
        """Notify that a token which cannot be refreshed is about to expire."""
        return await self._deliver(context, _event("token_expiring", context, context.args))

    # ---- what a dead letter's notice is about --------------------------------------------------

    async def _connection_behind(self, context: JobContext) -> Credential | None:
        """Return the connection of a dead job, or the lost one that it must have used.

        None for a handler's own outcome ``needs_reauth`` that names no connection.
        """
        if context.args.get("connection_id"):
            return await self._credentials.read_id(UUID(context.args["connection_id"]))
        if context.args.get("code") == "needs_reauth":
            return None
        lost = await self._credentials.search(
            tenant=context.tenant, provider=context.provider, state="needs_reauth", limit=1
        )
        return lost[0] if lost else None

    def _connection_fields(self, credential: Credential) -> dict[str, Json]:
        """Return the fields that a dead letter lacks."""
        connection = credential.connection
        return {
            "connection_id": str(connection.connection_id),
            "account": connection.key.account,
            "link": self._reauth_link(connection.key, connection.connection_id),
        }

    # ---- delivery ------------------------------------------------------------------------------

    async def _deliver(self, context: JobContext, event: Mapping[str, Json]) -> Outcome:
        subscribers = self._subscribers.get(event["event"], ())
        if not subscribers and self._webhook is None:
            return Complete({"delivered": "nobody"})
        delivered: dict[str, Json] = {"event_id": event["event_id"], "subscribers": len(subscribers)}
        if self._webhook is not None:
            delivered["webhook_job"] = await self._enqueue_webhook(context, event)
        problems = await self._call(subscribers, event)
        if not problems:
            return Complete({"delivered": delivered})
        reason = f"{len(problems)} of {len(subscribers)} subscribers failed, first: {safe_text(problems[0])}"
        return Retry(Failure(Category.TRANSIENT_NETWORK, SUBSCRIBER_FAILED.code, reason))

    async def _enqueue_webhook(self, context: JobContext, event: Mapping[str, Json]) -> str:
        """Enqueue the webhook. Its body is fixed here, so that every attempt sends the same."""
        args: dict[str, Json] = {
            "event_id": event["event_id"],
            "body": {"type": event["event"], "timestamp": event["occurred_at"], "data": event},
        }
        if event["connection_id"]:
            args["connection_id"] = event["connection_id"]
        job = NewJob(
            job_id=self._ids.uuid7(),
            kind=WEBHOOK,
            tenant_id=context.tenant,
            queue=context.job.queue,
            provider=context.provider,
            group_key=context.job.group_key,
            priority=Priority.URGENT,
            args=args,
            unique_key=event["event_id"],
            unique_for_s=ONCE_FOR_S,
            expires_in_s=EXPIRES_IN_S,
        )
        stored = await self._jobs.enqueue([job])
        return str(stored[0].job_id)

    async def _call(
        self, subscribers: Sequence[Subscriber], event: Mapping[str, Json]
    ) -> list[BaseException]:
        """Call the remaining subscribers concurrently; return their errors."""
        delivered = self._deliveries.of(event["event_id"])
        waiting = [position for position in range(len(subscribers)) if position not in delivered]
        calls = [
            _call_subscriber(subscribers[position], dict(event), delivered, position) for position in waiting
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        return [result for result in results if result is not None]


async def _post(webhook: WebhookSender, context: JobContext) -> Outcome:
    body = json.dumps(context.args["body"], ensure_ascii=False, separators=(",", ":")).encode()
    await webhook.send(Webhook(context.args["event_id"], context.tenant, context.provider, body))
    return Complete({"delivered": "webhook"})


async def _call_subscriber(
    subscriber: Subscriber, event: Mapping[str, Json], delivered: set[int], position: int
) -> None:
    """Call *subscriber* with *event*, and add its *position* to *delivered* once it has succeeded."""
    try:
        if inspect.iscoroutinefunction(subscriber):
            await subscriber(event)
        else:
            result = await asyncio.to_thread(subscriber, event)
            if inspect.isawaitable(result):
                await result
    except SystemExit:  # a task that ends by it ends the event loop
        raise RuntimeError("the subscriber tried to end the process") from None
    delivered.add(position)


class _Deliveries:
    """Deliveries by event and subscriber, so that a retry for one subscriber does not repeat the others'."""

    def __init__(self) -> None:
        self._by_event: OrderedDict[str, set[int]] = OrderedDict()

    def of(self, event_id: str) -> set[int]:
        """Return the indexes of the subscribers that got *event_id*. Only the latest 1024 events are kept."""
        delivered = self._by_event.setdefault(event_id, set())
        self._by_event.move_to_end(event_id)
        while len(self._by_event) > _REMEMBERED:
            self._by_event.popitem(last=False)
        return delivered


def _event(name: str, context: JobContext, about: Mapping[str, Json]) -> dict[str, Json]:
    """Return the event for subscribers and receivers.

    It holds no secret; fields that do not apply are None.
    """
    event: dict[str, Json] = {
        "event": name,
        "event_id": about.get("event_id") or str(context.job.job_id),
        "occurred_at": about.get("occurred_at") or context.job.created_at.isoformat(),
        "tenant": context.tenant,
        "provider": context.provider,
        "account": about.get("account"),
        "connection_id": about.get("connection_id"),
        "reason": about.get("reason"),
        "link": about.get("link"),
    }
    if name == "token_expiring":
        return {**event, "expires_at": about.get("expires_at")}
    return {**event, "dead_letter_id": about.get("dead_letter_id"), "last": bool(about.get("last"))}
