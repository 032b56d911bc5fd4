"""The gate with a second leg: the fleet's while Redis answers, this process's share while it does not (G8).

It is noticed by whichever comes first: an error, or a ping that is not answered within 0.8 s. Who waits for
an answer then is served from the share; what the store makes of their asks later is undone. Two quick
answers in a row end it: the store is told what was spent and held meanwhile, and asked again. Somebody may
want it to be so although Redis answers.

Over 400 lines because both halves of the gate are switched in one place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.engine.base.timing import TimeLimit
from fairlead.engine.limits.degraded_gate import DegradedGate, LocalCounts, renewal_of
from fairlead.engine.limits.resync import tell
from fairlead.engine.ports import (
    AdmitRequest,
    AdmitResult,
    Admitted,
    FleetGate,
    GateRefusal,
    Lease,
    OnReleased,
    Queued,
    RefusedBy,
    Release,
    Released,
    Renewal,
    Reserved,
    Wake,
)
from fairlead.errors import LimiterUnavailableError
from fairlead.events import Emit, GateDegraded, GateRestored, GateSlow
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.limit import Domain, Plan
from fairlead.policy.limits.pool import Holder
from fairlead.policy.limits.share import Share
from fairlead.policy.text.safe import safe_text

ANSWER_S = 0.8
"""A store that does not answer for so long is away."""
SLOW_S = 0.5
LOOK_S = 0.2
FORSAKEN = 256
"""The most asks to remember whose caller was cancelled before the answer, or is waiting for its turn."""
AGAIN_S = 5.0
"""When to ask again for what only the store can tell."""
ANSWERS_TO_RETURN = 2
SHARED_S = 1.0
"""So long a process that is back keeps to its share: by then the others are back, too, and the store knows
what they hold and have spent. Of slots after an absence as long as a lease, of buckets after OVERLAP_S."""
OVERLAP_S = 0.5
"""What came back to a bucket meanwhile is no more than what processes with and without the store may send on
top of each other anyway (R27)."""


class FailoverGate:
    """See fairlead.engine.ports.gate.Gate. *local* makes a gate of this process alone.

    *storeless*: *fleet* will never answer, for nobody set a store up.
    """

    def __init__(
        self,
        fleet: FleetGate,
        local: Callable[[], LocalCounts],
        *,
        share: Callable[[], Share],
        clock: Clock,
        draw: Draw,
        emit: Emit,
        storeless: bool = False,
    ) -> None:
        self._fleet = fleet
        self._storeless = storeless
        self._local = local
        self._share = share
        self._clock, self._draw = clock, draw
        self._emit = emit
        self._degraded: DegradedGate | None = None
        self._before: DegradedGate | None = None
        """The outage that has just ended, while we keep to our share."""
        self._held: dict[int, Admitted | Renewal] = {}
        self._in_line: dict[int, AdmitRequest] = {}
        self._forsaken: deque[AdmitRequest] = deque(maxlen=FORSAKEN)
        self._returned_s, self._away_s, self._answers = -SHARED_S, 0.0, 0
        self._taken: dict[tuple[Domain, str], set[int]] = {}
        self._returning: asyncio.Event | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._late: list[tuple[Release, OnReleased]] = []
        self._by_hand = self._slow = False
        self._wake: Wake = lambda lease_id: None

    @property
    def is_degraded(self) -> bool:
        """Whether the fleet's limits are out of reach."""
        return self._degraded is not None

    # ---- the port ------------------------------------------------------------------------------

    async def admit(self, ask: AdmitRequest) -> AdmitResult:
        """By the fleet's counts, or by this process's share of them."""
        degraded = self._degraded if self._returning is None else await self._settled()
        if degraded is None:
            try:
                answer = await (self._fleet.admit(ask) if self._before is None else self._just_back(ask))
            except asyncio.CancelledError:
                left = self._forsaken.extend if self._degraded is None else self._degraded.abandon
                left([ask])  # in case Redis becomes unavailable before it is undone there
                raise
            except LimiterUnavailableError as error:
                degraded = await self._goes_away(error)
            else:
                degraded = self._degraded  # gone while the answer was there and not taken up yet
                if degraded is None or isinstance(answer, Admitted):
                    await self._note(answer)
                    return self._followed(ask, answer)
            degraded.abandon([ask])
        return self._followed(ask, await degraded.admit(ask))

    async def release(self, release: Release) -> Released:
        """Where the call was admitted, as far as that is there."""
        admitted = release.admitted
        degraded = await self._settled()
        held = self._held.pop(admitted.holder.lease_id, None) if admitted.holder is not None else None
        self._forget(admitted.plan, admitted.holder)
        if degraded is None:
            if admitted.local:  # of an outage that has ended: the store was told of its slot, and of its cost
                release = release._replace(actual={}, observed={})
                if held is None:
                    return Released(was_held=True)
            try:
                return await self._fleet.release(release)
            except LimiterUnavailableError as error:
                degraded = await self._goes_away(error)
        return await degraded.release(release, in_store=held is not None)

    def release_soon(self, release: Release, told: OnReleased) -> None:
        """The same without anybody who waits; what the store is not told is settled here."""
        admitted, holder = release.admitted, release.admitted.holder
        if release.health is DestinationHealth.RESPONDING:
            # Only for the breaker that admitted it; for any other the end of the probe decides.
            if self._returning is None and admitted.local is (self._degraded is not None):
                (self._degraded or self._fleet).release_soon(release, told)
            return
        if self._returning is not None:
            self._late.append((release, told))  # before those who ask meanwhile
            return
        held = self._held.pop(holder.lease_id, None) if holder is not None else None
        self._forget(admitted.plan, holder)
        if self._degraded is not None:
            self._degraded.release_soon(release, told, in_store=held is not None)
            return
        if admitted.local:  # of an outage that has ended, as in `finish`
            release = release._replace(actual={}, observed={})
            if held is None:
                told(Released(was_held=True))
                return

        def heard(result: Released | Exception) -> None:
            if isinstance(result, LimiterUnavailableError):
                self._spawn(self._lost(release, told, result, in_store=held is not None))
            else:
                told(result)

        self._fleet.release_soon(release, heard)

    async def _lost(
        self, release: Release, told: OnReleased, error: LimiterUnavailableError, *, in_store: bool
    ) -> None:
        (await self._goes_away(error)).release_soon(release, told, in_store=in_store)

    def _spawn(self, ending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(ending, name="fairlead-gate-end")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def drained(self) -> None:
        """Wait until every end that the store was not told has been settled."""
        while self._ending:
            await asyncio.wait(self._ending)

    async def cancel(self, ask: AdmitRequest) -> None:
        """Undone where it was asked; what cannot be reached ends by itself."""
        self._forget(ask.plan, ask.holder)
        degraded = await self._settled()
        if degraded is None:
            try:
                await self._fleet.cancel(ask)
            except LimiterUnavailableError as error:
                degraded = await self._goes_away(error)
        if degraded is not None:
            degraded.abandon([ask])
            await degraded.cancel(ask)

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        """By whoever counts now."""
        degraded = await self._settled()
        if degraded is None:
            try:
                return await self._fleet.renew(renewals)
            except LimiterUnavailableError as error:
                degraded = await self._goes_away(error)
        return await degraded.renew(renewals)

    async def attach(self, renewal: Renewal) -> Lease:
        """Go on with a slot that another process, or nobody, kept until now.

        LimiterUnavailableError while this process is alone: only the store knows whose it is.
        """
        if await self._settled() is not None:
            raise LimiterUnavailableError(
                "whose slot it is can be told by Redis alone", retry_after_s=AGAIN_S
            )
        try:
            (state,) = await self._fleet.renew([renewal])
        except LimiterUnavailableError as error:
            await self._goes_away(error)
            raise LimiterUnavailableError(error.message, hint=error.hint, retry_after_s=AGAIN_S) from error
        if state is Lease.ACTIVE:
            self._held[renewal.holder.lease_id] = renewal
            if self._degraded is not None:
                await self._degraded.adopt(renewal)
        return state

    async def detach(self, renewal: Renewal) -> None:
        """Leave a slot taken, for another lease, for whoever takes it up: this process keeps it no longer."""
        try:
            await self.renew([renewal])
        finally:
            self._held.pop(renewal.holder.lease_id, None)
            if self._degraded is not None:
                self._degraded.detach(renewal.holder.lease_id)

    async def listen(self, wake: Wake) -> None:
        """Grants of either."""
        self._wake = wake
        await self._fleet.listen(wake)

    async def _note(self, answer: AdmitResult) -> None:
        if isinstance(answer, Admitted) and answer.holder is not None and answer.plan.pool is not None:
            self._held[answer.holder.lease_id] = answer
            if self._degraded is not None:
                await self._degraded.adopt(renewal_of(answer))

    def _followed(self, ask: AdmitRequest, answer: AdmitResult) -> AdmitResult:
        if isinstance(answer, Admitted) and ask.holder is not None:
            self._in_line.pop(ask.holder.lease_id, None)
        elif isinstance(answer, Queued) and ask.holder is not None:
            self._in_line[ask.holder.lease_id] = ask
        else:
            self._forget(ask.plan, ask.holder)
            if isinstance(answer, Reserved) and answer.delay_s <= ask.wait_s:  # its caller may not collect it
                self._forsaken.append(ask)
        return answer

    def _forget(self, plan: Plan, holder: Holder | None) -> None:
        if holder is not None:
            self._in_line.pop(holder.lease_id, None)
            if plan.pool is not None and self._taken:
                self._taken.get((plan.domain, plan.pool.key), set()).discard(holder.lease_id)

    async def _just_back(self, ask: AdmitRequest) -> AdmitResult:
        """By the fleet's counts as far as our share goes: others may keep to theirs, and be counted later."""
        before, left_s = self._before, self._returned_s + SHARED_S - self._clock.monotonic()
        if before is None or left_s <= 0:
            self._before = None
            return await self._fleet.admit(ask)
        if (early := self._beyond_share(ask, left_s)) is not None:
            return early
        paid = await before.pay(ask) if self._away_s > OVERLAP_S else None
        if isinstance(paid, GateRefusal):
            if ask.holder is not None and ask.holder.lease_id in self._in_line:
                await self._fleet.cancel(ask)  # a refusal holds nothing: what comes to it would lie idle
            wait_s = left_s if paid.retry_after_s is None else min(left_s, paid.retry_after_s)
            return GateRefusal(RefusedBy.RECOVERY, wait_s)
        answer = await self._fleet.admit(ask)
        if paid is not None and not isinstance(answer, Admitted):
            await before.refund(paid)
        return answer

    def _beyond_share(self, ask: AdmitRequest, left_s: float) -> GateRefusal | None:
        """What is held and asked for may not pass our share while others may keep to theirs."""
        pool = ask.plan.pool
        if pool is None or ask.holder is None or self._away_s + SHARED_S < pool.lease_s:
            return None
        taken = self._taken.setdefault((ask.plan.domain, pool.key), set())
        if ask.holder.lease_id not in taken and len(taken) >= self._share().slots(pool.capacity):
            return GateRefusal(RefusedBy.RECOVERY, left_s)
        taken.add(ask.holder.lease_id)
        return None

    def _wake_all(self) -> Collection[AdmitRequest]:
        """Who stands in a line that no longer counts asks again now, not when a lost hint would be missed."""
        waiting, self._in_line = self._in_line, {}
        for lease_id in waiting:
            self._wake(lease_id)
        return [*waiting.values(), *self._forsaken]

    async def _settled(self) -> DegradedGate | None:
        """Who counts now, once a return under way has ended: the fleet (None), or this process alone."""
        if self._returning is not None:
            await self._returning.wait()
        return self._degraded

    # ---- away and back -------------------------------------------------------------------------

    async def _goes_away(self, error: LimiterUnavailableError) -> DegradedGate:
        """Who waits for an answer of the store is served here; what comes of his ask is undone."""
        if self._degraded is not None:
            return self._degraded
        self._before = None
        self._degraded = degraded = DegradedGate(
            self._local(),
            self._share,
            self._clock.monotonic,
            [renewal_of(held) for held in self._held.values()],
            self._storeless,
        )
        self._answers = 0
        self._emit(GateDegraded(safe_text(error)))
        await degraded.gate.listen(self._wake)
        await degraded.begin()
        degraded.abandon(self._wake_all())
        self._fleet.abandon(error)
        return degraded

    async def force_degraded(self, why: str | None) -> None:
        """Keep to this process's share for as long as somebody wants it; None: for no longer.

        Then it returns as it does when the store is back.
        """
        self._by_hand = why is not None
        if why is None or await self._settled() is not None:
            return
        await self._goes_away(LimiterUnavailableError(f"the gate is degraded by hand: {why}"))

    async def look(self) -> float | None:
        """One look at the store: is it there, is it back? To be done every *LOOK_S*."""
        began_s = self._clock.monotonic()
        try:
            async with TimeLimit(self._clock, ANSWER_S):
                await self._fleet.ping()
        except (LimiterUnavailableError, TimeoutError) as error:
            self._answers = 0
            if self._degraded is None:
                await self._goes_away(error if isinstance(error, LimiterUnavailableError) else _silent())
            return LOOK_S
        took_s = self._clock.monotonic() - began_s
        self._tell_slow(took_s)
        self._answers = self._answers + 1 if took_s < SLOW_S else 0
        is_back = self._answers >= ANSWERS_TO_RETURN and self._fleet.is_settled
        if self._degraded is not None and is_back and not self._by_hand:
            await self._comes_back(self._degraded)
        return LOOK_S

    def _tell_slow(self, took_s: float) -> None:
        slow = took_s > SLOW_S
        if slow and not self._slow:
            self._emit(GateSlow(round(took_s, 3)))
        self._slow = slow

    async def _comes_back(self, degraded: DegradedGate) -> None:
        """Tell the store what it missed; whoever asks meanwhile waits for that."""
        self._returning = asyncio.Event()
        try:
            adopted = await tell(self._fleet, degraded, self._clock)
            self._held = {renewal.holder.lease_id: replace(renewal, adopt=False) for renewal in adopted}
            degraded.gate.drop_reservations()  # the store gives turns again: these stand in nobody's way
            self._degraded, self._before = None, degraded
            self._returned_s, self._taken = self._clock.monotonic(), {}
            self._away_s = self._returned_s - degraded.since_mono
            for renewal in adopted:
                taken = self._taken.setdefault((renewal.domain, renewal.pool.key), set())
                taken.add(renewal.holder.lease_id)
        except LimiterUnavailableError:
            self._answers = 0
        finally:
            returning, self._returning = self._returning, None
            late, self._late = self._late, []
            with ExitStack() as each:  # whatever one raises: the others are done, and nobody is left waiting
                each.callback(returning.set)
                for release, told in reversed(late):
                    each.callback(self.release_soon, release, told)
        if self._degraded is None:
            self._wake_all()
            self._emit(GateRestored(round(self._away_s, 3)))

    def service(self) -> Service:
        """The looks, as a background service."""
        return Service(
            "gate-guard", self.look, interval_s=LOOK_S, clock=self._clock, draw=self._draw, emit=self._emit
        )


def _silent() -> LimiterUnavailableError:
    return LimiterUnavailableError(f"Redis did not answer within {ANSWER_S:g} s")
