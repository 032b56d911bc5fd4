"""Keeps what this process holds at the gate: one renewal of all its slots, every third of a lease (G4).

A slot that the gate says is lost may be somebody else's by now: the call under it is cancelled and is told
so. One that cannot be renewed will be: so this process stops the call by its own clock before the lease can
have ended, counted from when it asked. Nothing of it is ever taken back by force. That clock stands still
while a machine sleeps: who wakes goes on with a slot that may be somebody else's, until his next renewal.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fairlead._core.clock import Clock, Draw
from fairlead.engine.base.service import Service
from fairlead.engine.ports.gate import Admitted, Gate, Lease, Renewal
from fairlead.errors import DependencyUnavailableError, LimiterUnavailableError, SlotLostError
from fairlead.events import Emit
from fairlead.policy.limits.limit import PoolLimit
from fairlead.policy.limits.pool import Holder

T = TypeVar("T")

SLOT_LOST_MESSAGE = "the slot was lost before the call ended"
STORE_GONE = (LimiterUnavailableError, DependencyUnavailableError)
"""A gate that is away, or was closed as this process ends. The call was made all the same, and what was held
there ends by itself: by its lease, or by the time of its turn."""
BEATS_PER_LEASE = 3
SOONEST_LOSS_S = 30.0
"""A store that lost everything grants slots again after so long: who holds one must have said so by then."""
SPARE_SHARE = 1 / 30
"""Of a lease: so much before its end a call is cancelled that could not be renewed, to be over by then."""
BEAT_SPREAD = 1.05
"""The wait between two beats may be so much longer (Service)."""


@dataclass(slots=True)
class HeldLease:
    """A slot under a running call, which *task* runs; it was being *cancelled* so often before.

    *asked_s*: when that left to which the gate answered with its lease. The lease began later, never earlier.
    """

    admitted: Admitted
    pool: PoolLimit
    holder: Holder
    task: asyncio.Task[object]
    asked_s: float
    cancelled: int
    lost: bool = False

    @property
    def stop_s(self) -> float:
        """By this process's clock: then it has to stop, unless it was renewed."""
        return self.asked_s + _sure_s(self.pool) * (1 - SPARE_SHARE)


class GrantSignal:
    """A place in line. As asyncio.Event, which is made once somebody waits: most calls never do."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: asyncio.Event | None = None

    def is_set(self) -> bool:
        """Whether it was granted something since it was last cleared."""
        return self._is_set

    def set(self) -> None:
        """It was."""
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def clear(self) -> None:
        """What comes from now on counts."""
        self._is_set, self._event = False, None

    async def wait(self) -> None:
        """Until it is set. For one at a time."""
        if not self._is_set:
            self._event = asyncio.Event()
            await self._event.wait()


class LeaseRenewer:
    """One per process. Also knows who of it stands in line, and wakes whom the gate grants a slot.

    *beat_s*: how often it looks what is due (default 3); a lease is renewed within a third of its
    length, at least each 10 s. *alone*: whether this process counts by itself, for the store is away. Then
    what it may hold depends on the time, and all of it is asked for at each beat.
    """

    def __init__(
        self,
        gate: Gate,
        *,
        clock: Clock,
        draw: Draw,
        emit: Emit,
        beat_s: float = 3.0,
        is_degraded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._gate = gate
        self._clock = clock
        self._draw = draw
        self._emit = emit
        self._beat_s = beat_s
        self._is_degraded = is_degraded
        self._watch_s, self._unwatch = math.inf, _nothing
        self._held: dict[int, HeldLease] = {}
        self._line: dict[int, GrantSignal] = {}
        self._ending: set[asyncio.Future[Any]] = set()

    # ---- in line -------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Have grants to this process told to those who wait for them."""
        await self._gate.listen(self._wake)

    def line(self, holder: Holder | None) -> GrantSignal:
        """What says that *holder* was granted a slot; to be left by `leave`."""
        line = GrantSignal()
        if holder is not None:
            self._line[holder.lease_id] = line
        return line

    def leave(self, holder: Holder | None) -> None:
        """*holder* stands in line no more."""
        if holder is not None:
            self._line.pop(holder.lease_id, None)

    def _wake(self, lease_id: int) -> None:
        line = self._line.get(lease_id)
        if line is not None:
            line.set()

    # ---- slots ---------------------------------------------------------------------------------

    def now_s(self) -> float:
        """The clock by which it keeps slots."""
        return self._clock.monotonic()

    @contextmanager
    def keep(self, admitted: Admitted, asked_s: float) -> Iterator[None]:
        """Renew the slot of *admitted* while the block runs. SlotLostError where it was lost before the end."""
        held = self.hold(admitted, asked_s)
        try:
            yield
        except BaseException as error:
            if self.release_local(held, error):
                raise SlotLostError(SLOT_LOST_MESSAGE) from None
            raise
        self.release_local(held)

    def hold(self, admitted: Admitted, asked_s: float) -> HeldLease | None:
        """Renew the slot of *admitted*, asked for at *asked_s* (monotonic), until `let_go`.

        Where it is lost the task that calls this is cancelled.
        """
        pool, holder = admitted.plan.pool, admitted.holder
        if pool is None or holder is None:
            return None
        task = asyncio.current_task()
        assert task is not None
        held = HeldLease(admitted, pool, holder, task, asked_s, task.cancelling())
        self._held[holder.lease_id] = held
        if held.stop_s < self._watch_s:
            self._watch(held.stop_s)
        return held

    def release_local(self, held: HeldLease | None, error: BaseException | None = None) -> bool:
        """It runs no more, and ended with *error*. Whether that is for its lost slot, and for nothing else:
        the cancellation is taken back then."""
        if held is None:
            return False
        del self._held[held.holder.lease_id]
        was_lost = held.lost and isinstance(error, asyncio.CancelledError)
        return was_lost and held.task.uncancel() <= held.cancelled

    def service(self) -> Service:
        """The renewals, as a background service."""
        return Service(
            "gate-keeper",
            self.beat,
            interval_s=self._beat_s,
            clock=self._clock,
            draw=self._draw,
            emit=self._emit,
        )

    async def beat(self) -> None:
        """Renew what is due; cancel what is lost."""
        now_s, degraded = self._clock.monotonic(), self._is_degraded()
        due = [held for held in self._held.values() if degraded or now_s >= self._renew_s(held)]
        if not due:
            return
        try:
            states = await self._gate.renew([_renewal(held) for held in due])
        except LimiterUnavailableError:
            return  # not renewed, and not lost before its lease has passed
        for held, state in zip(due, states, strict=True):
            if state is Lease.HELD:
                held.asked_s = now_s
            elif state is Lease.LOST:
                self._lose(held)

    def _renew_s(self, held: HeldLease) -> float:
        """When to renew it: at the last beat that is surely within a third of its lease."""
        third_s = min(held.pool.lease_s, SOONEST_LOSS_S) / BEATS_PER_LEASE
        return held.asked_s + third_s - self._beat_s * BEAT_SPREAD

    # ---- by its own clock

    def _watch(self, at_s: float) -> None:
        """One timer for all: mostly it finds that everything was renewed, or has ended, meanwhile."""
        self._unwatch()
        self._watch_s = at_s
        self._unwatch = self._clock.call_later(max(0.0, at_s - self._clock.monotonic()), self._look)

    def _look(self) -> None:
        now_s = self._clock.monotonic()
        for held in [held for held in self._held.values() if held.stop_s <= now_s]:
            self._lose(held)
        self._watch_s, self._unwatch = math.inf, _nothing
        next_s = min((held.stop_s for held in self._held.values() if not held.lost), default=math.inf)
        if next_s < math.inf:
            self._watch(next_s)

    def _lose(self, held: HeldLease) -> None:
        if held.holder.lease_id in self._held and not held.lost:
            held.lost = True
            held.task.cancel()

    # ---- endings -------------------------------------------------------------------------------

    async def run_to_completion(self, ending: Awaitable[T]) -> T | None:
        """*ending* done to its end, whoever is cancelled meanwhile; None where the gate is away."""
        return await asyncio.shield(self.start(ending))

    def start(self, ending: Awaitable[T]) -> asyncio.Future[T | None]:
        """Start the same without waiting for it."""
        task = asyncio.ensure_future(self._quietly(ending))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    @staticmethod
    async def _quietly(ending: Awaitable[T]) -> T | None:
        try:
            return await ending
        except STORE_GONE:
            return None

    async def drained(self) -> None:
        """Wait until every ending has been done."""
        while self._ending:
            await asyncio.wait(self._ending)
        if not self._held:
            self._unwatch()
            self._watch_s, self._unwatch = math.inf, _nothing


def _sure_s(pool: PoolLimit) -> float:
    """For so long after it was asked for a slot is nobody else's, even where the store loses everything.

    Who gives out fenced ones does not trust such a store for as long as they last (bulk operations).
    """
    return pool.lease_s if pool.fencing else min(pool.lease_s, SOONEST_LOSS_S)


def _nothing() -> None:
    """No timer runs."""


def _renewal(held: HeldLease) -> Renewal:
    return Renewal(held.admitted.plan.domain, held.pool, held.holder, held=True)
