"""The way of one call, outermost first (R31).

    deadline ─► retry ─► a breaker known open? ─► credential ─► one admission ─► send ─► classify ─► settle
       │          ▲                                                                          │
       │          └── 401: a newer token, once · a failure that may pass: after its delay ◄──┘
       └── no wait is begun that cannot end in time

Nothing is held while a token is refreshed or a delay is slept: admission covers the sending and no more. A
refusal before the send costs nothing at the provider, and says so by its type (Refused); what was sent and
failed is a CallFailed.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from fairlead.clock import Clock, Draw
from fairlead.engine.call.known_open import KnownOpen
from fairlead.engine.call.pages import Fetch, Page, pages
from fairlead.engine.call.wish import Call, Came
from fairlead.engine.events import CallAttempted
from fairlead.engine.gate.admission import Passage
from fairlead.engine.gate.entrance import INLINE_WAIT_S, CallWish, Entrance
from fairlead.engine.handler import current_job
from fairlead.engine.ports import Connection, ConnectionKey
from fairlead.engine.ports.http import HttpAnswer, HttpRequest, NoAnswer, Transport
from fairlead.errors import CallFailed, DeadlineTooShort, GateClosed
from fairlead.events import Emit
from fairlead.policy.call import Attempt, Follow, Then, follow, repeatable
from fairlead.policy.classify.body import reply_of
from fairlead.policy.classify.judge import judge
from fairlead.policy.classify.rules import Rules
from fairlead.policy.classify.verdict import Verdict
from fairlead.policy.deadline import buffer_s, has_time
from fairlead.policy.feedback.dialect import heard
from fairlead.policy.feedback.reply import Reply
from fairlead.policy.lost import lost
from fairlead.policy.page import Asked, Pages
from fairlead.policy.profile import Profile
from fairlead.policy.token import PublicToken
from fairlead.secret import Secret


class Tokens(Protocol):
    """Where the pipeline gets its credentials."""

    async def token(self, key: ConnectionKey) -> PublicToken: ...

    async def newer(self, key: ConnectionKey, than: int | None) -> PublicToken: ...


@dataclass(frozen=True, slots=True)
class Manners:
    """How calls of a connection are made and judged."""

    rules: Rules
    profile: Profile


@dataclass(slots=True)
class _Progress:
    """A call on its way."""

    ends_s: float
    inline_s: float
    began_s: float
    retries: int = 0
    sends: int = 0
    refreshed: bool = False
    token: PublicToken | None = None
    sent_s: float = 0.0


class Pipeline:
    """One per process. *manners*: of a connection, derived once per version of it."""

    def __init__(
        self,
        tokens: Tokens,
        entrance: Entrance,
        transport: Transport,
        manners: Callable[[Connection], Manners],
        *,
        clock: Clock,
        epoch_s: Callable[[], float],
        draw: Draw,
        emit: Emit,
    ) -> None:
        self._tokens = tokens
        self._entrance = entrance
        self._transport = transport
        self._manners = manners
        self._clock = clock
        self._epoch_s = epoch_s
        self._draw = draw
        self._emit = emit
        self._open = KnownOpen(clock)

    async def send(self, call: Call) -> Came:
        """The answer to *call*, whole or in part done.

        Raises CallFailed for what was sent and failed; a Refused (GateClosed, ReauthRequired,
        DeadlineTooShort...) for what was not sent at all; NotFound where there is no such connection.
        """
        manners = self._manners(await self._entrance.connection(call.key))
        on_way = self._begin(call)
        host = urlsplit(call.url).hostname or ""
        while True:
            self._open.check(call.key, host)
            if on_way.token is None:
                on_way.token = await self._tokens.token(call.key)
            came, reply, verdict = await self._admitted(call, host, manners, on_way)
            after = self._follow(call, manners, on_way, came, verdict)
            self._record(call, host, on_way, came, verdict, after)
            match after.then:
                case Then.GIVE:
                    assert isinstance(came, HttpAnswer)
                    assert reply is not None
                    return Came(came, reply, verdict, on_way.sends, self._waited_s(on_way))
                case Then.REFRESH:
                    on_way.token = await self._tokens.newer(call.key, on_way.token.generation)
                    on_way.refreshed = True
                case Then.AGAIN:
                    on_way.retries += 1
                    await self._clock.sleep(after.delay_s)
                case Then.FAIL:
                    raise _failed(call, came, reply, verdict, after, on_way)

    def pages(self, fetch: Fetch, way: Pages, first: Asked) -> AsyncIterator[Page]:
        """The pages of a list; see engine/call/pages.py. In a job none is waited for past its time."""
        job = current_job.get()

        def may_wait(wait_s: float) -> bool:
            return job is None or has_time(job.remaining_s - buffer_s(job.timeout_s, pages=True), wait_s)

        return pages(fetch, way, first, clock=self._clock, draw=self._draw, may_wait=may_wait)

    # ---- one attempt ---------------------------------------------------------------------------

    async def _admitted(
        self, call: Call, host: str, manners: Manners, on_way: _Progress
    ) -> tuple[HttpAnswer | NoAnswer, Reply | None, Verdict]:
        """Send once, inside of every limit; what came is told to the gate before its place is given back."""
        left_s = self._left_s(call, on_way)
        wish = self._wish(call, host, on_way, left_s)
        try:
            async with self._entrance.enter(wish) as passage:
                began_s = self._clock.monotonic()
                came = await self._transport.send(self._request(call, manners, on_way))
                on_way.sends += 1
                on_way.sent_s += self._clock.monotonic() - began_s
                return self._judged(came, manners, passage)
        except GateClosed as closed:
            self._open.note(call.key, host, closed)
            raise

    def _judged(
        self, came: HttpAnswer | NoAnswer, manners: Manners, passage: Passage
    ) -> tuple[HttpAnswer | NoAnswer, Reply | None, Verdict]:
        if isinstance(came, NoAnswer):
            verdict = lost(came.kind, sent=came.sent, why=came.why, rules=manners.rules)
            if not came.sent:
                passage.unsent()
            passage.told(verdict.health)
            return came, None, verdict
        reply, now_epoch_s = reply_of(came.status, came.headers, came.body), self._epoch_s()
        told = heard(passage.dialect, reply, now_epoch_s=now_epoch_s)
        verdict = judge(manners.rules, reply, told, now_epoch_s=now_epoch_s)
        passage.learnt(told, verdict.health)
        return came, reply, verdict

    def _request(self, call: Call, manners: Manners, on_way: _Progress) -> HttpRequest:
        assert on_way.token is not None
        carried = manners.profile.credential_header
        value = carried.format.replace("{token}", on_way.token.access_token.reveal())
        headers: Mapping[str, str | Secret] = {**carried.fixed, **call.headers, carried.name: Secret(value)}
        left_s = on_way.ends_s - self._clock.monotonic()
        return HttpRequest(call.method, call.url, headers, call.body, left_s, call.max_body_bytes)

    def _wish(self, call: Call, host: str, on_way: _Progress, left_s: float) -> CallWish:
        wait_s = on_way.inline_s if call.wait_s is None else call.wait_s
        return CallWish(
            call.key,
            call.api,
            host,
            call.cost,
            call.class_number,
            min(wait_s, left_s),
            left_s,
            retry=on_way.retries > 0 or None,
            operation=call.operation,
        )

    # ---- time ----------------------------------------------------------------------------------

    def _begin(self, call: Call) -> _Progress:
        """Its deadline; in a job with what the job needs to end (C6)."""
        now_s, job = self._clock.monotonic(), current_job.get()
        if job is None:
            return _Progress(now_s + call.deadline_s, math.inf, now_s)
        left_s = job.remaining_s - buffer_s(job.timeout_s)
        return _Progress(now_s + min(call.deadline_s, left_s), INLINE_WAIT_S, now_s)

    def _left_s(self, call: Call, on_way: _Progress) -> float:
        """DeadlineTooShort where nothing can be begun any more."""
        left_s = on_way.ends_s - self._clock.monotonic()
        if left_s <= 0:
            raise DeadlineTooShort(
                "there is no time left to begin the call",
                tenant=call.key.tenant,
                provider=call.key.provider,
                retry_after_s=0.0 if current_job.get() else None,
            )
        return left_s

    def _waited_s(self, on_way: _Progress) -> float:
        return self._clock.monotonic() - on_way.began_s - on_way.sent_s

    # ---- what follows --------------------------------------------------------------------------

    def _follow(
        self, call: Call, manners: Manners, on_way: _Progress, came: HttpAnswer | NoAnswer, verdict: Verdict
    ) -> Follow:
        may_repeat = call.repeatable
        attempt = Attempt(
            on_way.retries,
            on_way.refreshed,
            repeatable(call.method, call.headers) if may_repeat is None else may_repeat,
            on_way.ends_s - self._clock.monotonic(),
            on_way.inline_s,
        )
        status = came.status if isinstance(came, HttpAnswer) else None
        factor = manners.profile.backoff_factor
        return follow(attempt, verdict, status=status, draw=self._draw(), factor=factor)

    def _record(
        self,
        call: Call,
        host: str,
        on_way: _Progress,
        came: HttpAnswer | NoAnswer,
        verdict: Verdict,
        after: Follow,
    ) -> None:
        """What explains this attempt later (C11)."""
        self._emit(
            CallAttempted(
                call.key.tenant,
                call.key.provider,
                call.key.bucket,
                host,
                call.operation,
                on_way.sends,
                came.status if isinstance(came, HttpAnswer) else None,
                verdict.rule,
                str(verdict.category) if verdict.category else None,
                after.then.value,
                after.delay_s,
                self._waited_s(on_way),
                on_way.sent_s,
            )
        )


def _failed(
    call: Call,
    came: HttpAnswer | NoAnswer,
    reply: Reply | None,
    verdict: Verdict,
    after: Follow,
    on_way: _Progress,
) -> CallFailed:
    why = f"{verdict.why}; {after.why}" if after.why else verdict.why
    transient = verdict.category is not None and verdict.category.transient
    return CallFailed(
        why,
        tenant=call.key.tenant,
        provider=call.key.provider,
        category=verdict.category,
        reason=verdict.code,
        retry_after_s=max(after.delay_s, verdict.hint_s or 0.0) or None if transient else None,
        verdict=verdict,
        answer=came if isinstance(came, HttpAnswer) else None,
        reply=reply,
        attempts=on_way.sends,
    )
