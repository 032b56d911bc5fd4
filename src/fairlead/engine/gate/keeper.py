"""Keeps what this process holds at the gate: one renewal of all its slots, every third of a lease (G4).

A slot that the gate says is lost, or that could not be renewed for a whole lease, may be somebody else's by
now: the call under it is cancelled and is told so. Nothing of it is ever taken back by force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fairlead.clock import Clock, Draw
from fairlead.engine.ports.gate import Admitted, Gate, Lease, Renewal
from fairlead.engine.services.service import Service
from fairlead.errors import DependencyUnavailable, GateUnavailable, SlotLost
from fairlead.events import Emit
from fairlead.policy.gate.limit import PoolLimit
from fairlead.policy.gate.pool import Holder

T = TypeVar("T")

LOST = "the slot was lost before the call ended"
GONE = (GateUnavailable, DependencyUnavailable)
"""A gate that is away, or was closed as this process ends. The call was made all the same, and what was held
there ends by itself: by its lease, or by the time of its turn."""
BEATS_PER_LEASE = 3
SOONEST_LOSS_S = 30.0
"""A store that lost everything grants slots again after so long: who holds one must have said so by then."""


@dataclass(slots=True)
class Held:
    """A slot under a running call, which *task* runs; it was being *cancelled* so often before."""

    admitted: Admitted
    pool: PoolLimit
    holder: Holder
    task: asyncio.Task[object]
    renewed_s: float
    cancelled: int
    lost: bool = False


class Line:
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


class Keeper:
    """One per process. Also knows who of it stands in line, and wakes whom the gate grants a slot.

    *beat_s*: how often it looks what is due (default 3); a lease is renewed each third of its
    length, at least each 10 s.
    """

    def __init__(self, gate: Gate, *, clock: Clock, draw: Draw, emit: Emit, beat_s: float = 3.0) -> None:
        self._gate = gate
        self._clock = clock
        self._draw = draw
        self._emit = emit
        self._beat_s = beat_s
        self._held: dict[int, Held] = {}
        self._line: dict[int, Line] = {}
        self._ending: set[asyncio.Future[Any]] = set()

    # ---- in line -------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Have grants to this process told to those who wait for them."""
        await self._gate.listen(self._wake)

    def line(self, holder: Holder | None) -> Line:
        """What says that *holder* was granted a slot; to be left by `leave`."""
        line = Line()
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

    @contextmanager
    def keep(self, admitted: Admitted) -> Iterator[None]:
        """Renew the slot of *admitted* while the block runs. SlotLost where it was lost before the end."""
        held = self.hold(admitted)
        try:
            yield
        except BaseException as error:
            if self.let_go(held, error):
                raise SlotLost(LOST) from None
            raise
        self.let_go(held)

    def hold(self, admitted: Admitted) -> Held | None:
        """Renew the slot of *admitted* until `let_go`; where it is lost the task that asks is cancelled."""
        pool, holder = admitted.plan.pool, admitted.holder
        if pool is None or holder is None:
            return None
        task = asyncio.current_task()
        assert task is not None
        held = Held(admitted, pool, holder, task, self._clock.monotonic(), task.cancelling())
        self._held[holder.lease_id] = held
        return held

    def let_go(self, held: Held | None, error: BaseException | None = None) -> bool:
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
        now_s = self._clock.monotonic()
        due = [held for held in self._held.values() if now_s - held.renewed_s >= _renew_after_s(held.pool)]
        if not due:
            return
        try:
            states = await self._gate.renew([_renewal(held) for held in due])
        except GateUnavailable:
            states = [Lease.WAITING] * len(due)  # not renewed, and not lost before its lease has passed
        for held, state in zip(due, states, strict=True):
            if state is Lease.HELD:
                held.renewed_s = now_s
            elif state is Lease.LOST or self._clock.monotonic() - held.renewed_s >= held.pool.lease_s:
                self._lose(held)

    def _lose(self, held: Held) -> None:
        if held.holder.lease_id in self._held and not held.lost:
            held.lost = True
            held.task.cancel()

    # ---- endings -------------------------------------------------------------------------------

    async def through(self, ending: Awaitable[T]) -> T | None:
        """*ending* done to its end, whoever is cancelled meanwhile; None where the gate is away."""
        task = asyncio.ensure_future(self._quietly(ending))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return await asyncio.shield(task)

    @staticmethod
    async def _quietly(ending: Awaitable[T]) -> T | None:
        try:
            return await ending
        except GONE:
            return None

    async def drained(self) -> None:
        """Wait until every ending has been done."""
        while self._ending:
            await asyncio.wait(self._ending)


def _renew_after_s(pool: PoolLimit) -> float:
    return min(pool.lease_s, SOONEST_LOSS_S) / BEATS_PER_LEASE


def _renewal(held: Held) -> Renewal:
    return Renewal(held.admitted.plan.domain, held.pool, held.holder, held=True)
