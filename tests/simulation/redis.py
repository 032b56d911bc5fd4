"""The store of the gate in the simulated world: the model that the scripts are held against, shared by all.

After a loss it knows nothing, buckets begin empty and slots are granted again only once every old lease must
have ended, as the scripts have it (adapters/redis/lua/include/clock.lua). The same after a restart with an
old state, whose leases still stand.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from random import Random
from typing import Any, TypeVar

from fairlead.adapters.redis.connection import RESPONSE_TIMEOUT_S
from fairlead.engine.ports import (
    AdmitRequest,
    AdmitResult,
    Admitted,
    GateRefusal,
    Lease,
    OnReleased,
    Release,
    Released,
    Renewal,
    Wake,
)
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.limit import MICRO
from fairlead.policy.limits.pool import Holder
from tests.simulation.admission import breaker_of, note
from tests.simulation.process import SimProcess
from tests.simulation.shared_gate import LEASE_S, SharedGate
from tests.simulation.watch import (
    NOBODY,
    BreakerClosed,
    BreakerOpened,
    Kept,
    Over,
    SlotExpired,
    Struck,
    Watch,
)
from tests.simulation.wire import Disconnected, HowItEnded, Wire, WireResponse

T = TypeVar("T")


class SimRedis:
    """The server, and how it fails. *kind*: what it knows, and how it judges."""

    kind: type[SharedGate] = SharedGate

    def __init__(
        self,
        now_us: Callable[[], int],
        draw: Random,
        watch: Watch,
        kind: type[SharedGate] | None = None,
    ) -> None:
        self.kind = kind or self.kind
        self._now_us = now_us
        self._draw = draw.random
        self.watch = watch
        self._kept: SharedGate | None = None
        self.asker = NOBODY
        """The process whose request was served last."""
        self._wakes: list[tuple[SimProcess, Wake, Callable[[], float]]] = []
        self._away: dict[str, float] = {}
        self.lost = 0.0
        """The share of requests that are done, and whose connection breaks before the answer."""
        self.stalled_until_s = 0.0
        self.state = self._begun(self.first_state())

    def first_state(self) -> SharedGate:
        """What is known on the first day."""
        return self.kind(self.time_us)

    def empty_state(self) -> SharedGate:
        """What is known after all was lost."""
        now_us = self._now_us()
        return self.kind(self.time_us, birth_us=now_us, grants_from_us=now_us + round(LEASE_S * MICRO))

    def gate(self, process: SimProcess, latency_s: Callable[[], float]) -> RedisRoad:
        """The way there of one process."""
        return RedisRoad(self, process, latency_s)

    # ---- how it fails --------------------------------------------------------------------------

    def slots_in_use(self) -> Iterator[str]:
        """Each lease of a slot, in words."""
        return self.state.slots_in_use()

    def breakers_open(self) -> Iterator[str]:
        """Each breaker that is not closed, in words."""
        return self.state.breakers_open()

    def lose(self) -> None:
        """All that it knew is gone."""
        self.watch.strikes["redis_loss"] += 1
        self._struck("redis_loss")
        self.state = self._begun(self.empty_state())

    def keep(self) -> None:
        """A snapshot, for `bring_back`."""
        self._kept = self.state.restarted(self._now_us())

    def bring_back(self) -> None:
        """A restart with the snapshot; without one all is lost."""
        self._struck("redis_old")
        gate, self._kept = self._kept, None
        self.watch.strikes["redis_old"] += gate is not None
        self.state = self._begun(self.empty_state() if gate is None else gate.restarted(self._now_us()))

    def away_for(self, for_s: float, process: str = NOBODY) -> None:
        """Connections to it break for so long: those of *process*, or all."""
        until_s = self._now_us() / MICRO + for_s
        self._away[process] = max(self._away.get(process, 0.0), until_s)
        self._struck("redis_away", for_s, process)

    def stall_for(self, for_s: float) -> None:
        """It stands still for so long; what is asked meanwhile is done afterwards."""
        self.stalled_until_s = self._now_us() / MICRO + for_s
        self._struck("redis_stall", for_s)

    def _struck(self, fault: str, for_s: float = 0.0, process: str = NOBODY) -> None:
        self.watch.tell(Struck(fault, self._now_us() / MICRO + for_s), process)

    def is_away(self, process: str) -> bool:
        """Whether *process* cannot reach it now."""
        now_s = self._now_us() / MICRO
        return bool(self._away) and any(self._away.get(whom, -math.inf) > now_s for whom in (NOBODY, process))

    def heal(self) -> None:
        """It is there and answers."""
        for whom in {NOBODY: 0.0, **self._away}:
            self.watch.tell(Over("redis"), whom)
        self._away.clear()
        self.lost = self.stalled_until_s = 0.0

    def _begun(self, state: SharedGate) -> SharedGate:
        state.wakes(self._tell)
        state.expired = self._told_expired
        return state

    # ---- a request -----------------------------------------------------------------------------

    def time_us(self) -> int:
        """The server's clock, by which all is judged."""
        return self._now_us()

    def serve(self, act: Callable[[SharedGate], T], process: str) -> WireResponse[T]:
        """One request is here, and is done at once; what arrives while it is away meets nobody."""
        self.asker = process
        if self.is_away(process):
            self.watch.strikes["redis_away"] += 1
            self.watch.strikes["redis_away one"] += not self.is_away(NOBODY)
            return WireResponse(None, 0.0, _unheard)
        answer = act(self.state)
        if self.lost > 0 and self._draw() < self.lost:
            self.watch.strikes["redis_lost"] += 1
            self._struck("redis_lost", process=process)
            return WireResponse(None, 0.0, _unheard)
        return WireResponse(answer, 0.0, _unheard)

    def listen(self, process: SimProcess, wake: Wake, latency_s: Callable[[], float]) -> None:
        """Tell *process* of grants from now on."""
        self._wakes.append((process, wake, latency_s))

    def _tell(self, lease_id: int) -> None:
        loop = asyncio.get_running_loop()
        self._wakes = [wake for wake in self._wakes if not wake[0].dead]
        for process, wake, latency_s in self._wakes:
            loop.call_later(latency_s(), wake, lease_id, context=process.context())

    # ---- what is seen --------------------------------------------------------------------------

    def renew(self, state: SharedGate, renewals: Sequence[Renewal]) -> list[Lease]:
        """Keep leases and places."""
        leases = state.renewed(renewals)
        for renewal, lease in zip(renewals, leases, strict=True):
            if lease is Lease.ACTIVE:
                self.watch.tell(Kept(renewal.holder.lease_id))
        return leases

    def _told_expired(self, holder: Holder, key: str, until_us: int) -> None:
        self.watch.tell(SlotExpired(key, until_us / MICRO, holder.lease_id), holder.process.split("#")[0])

    def release(self, state: SharedGate, release: Release) -> Released:
        """The end of a call."""
        finished: list[Released | Exception] = []
        state.release_soon(release, finished.append)
        (result,) = finished
        assert isinstance(result, Released)
        breaker = breaker_of(release.admitted.plan)
        if result.opened_s is not None:
            self.watch.tell(BreakerOpened(breaker, result.opened_s))
        elif result.closed:
            self.watch.tell(BreakerClosed(breaker))
        return result


class RedisRoad:
    """The fleet's gate as one process reaches it; see fairlead.engine.ports.gate.FleetGate."""

    def __init__(self, redis: SimRedis, process: SimProcess, latency_s: Callable[[], float]) -> None:
        self._redis = redis
        self._process = process
        self._latency_s = latency_s
        self._wire = Wire(process, latency_s, lambda: redis.is_away(process.name))
        self._waiting: dict[asyncio.Future[Any], None] = {}  # in their order
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._under_way = 0

    async def admit(self, ask: AdmitRequest) -> AdmitResult:
        """One step, all or nothing."""
        judged_at, now = 0.0, asyncio.get_running_loop().time

        def judge(state: SharedGate) -> AdmitResult:
            nonlocal judged_at
            judged_at = now()
            return state.decide(ask)

        answer = await self._asked(judge, partial(self._undo, ask))
        note(ask, answer, judged_at, degraded=False)
        return answer

    async def release(self, release: Release) -> Released:
        """Give back the slot, settle the buckets, tell the breaker."""
        return await self._asked(lambda state: self._redis.release(state, release))

    def release_soon(self, release: Release, callback: OnReleased) -> None:
        """The same, begun at once. The way out of a dead process's code comes here, too."""
        if self._process.dead:
            return
        self._spawn(self._ended(release, callback))

    async def _ended(self, release: Release, callback: OnReleased) -> None:
        try:
            finished = await self.release(release)
        except LimiterUnavailableError as error:
            callback(error)
        else:
            callback(finished)

    async def cancel(self, ask: AdmitRequest) -> None:
        """Leave the line, give back a grant or turns."""
        await self._asked(lambda state: state.cancelled(ask))

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        """Keep leases and places."""
        return await self._asked(lambda state: self._redis.renew(state, renewals))

    async def listen(self, wake: Wake) -> None:
        """Have *wake* called for each grant."""
        self._redis.listen(self._process, wake, self._latency_s)

    async def ping(self) -> None:
        """Return once it has answered."""
        await self._asked(lambda state: True)

    def abandon(self, error: LimiterUnavailableError) -> None:
        """Fail all who wait for an answer; what comes of their asks is undone when it is known."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            _fail(waiter, error)

    @property
    def is_settled(self) -> bool:
        """Whether no admission is under way, nor one to be undone."""
        return not self._under_way and not self._tasks

    async def _asked(self, act: Callable[[SharedGate], T], undo: Callable[[T], None] | None = None) -> T:
        loop, name = asyncio.get_running_loop(), self._process.name
        result: asyncio.Future[T] = loop.create_future()
        ours = copy_context()

        def on_answer(answer: T | Disconnected) -> None:
            self._under_way -= undo is not None
            if isinstance(answer, str):
                _fail(result, LimiterUnavailableError(f"the store did not answer: {answer}"))
            elif not result.done():
                result.set_result(answer)
            elif undo is not None:  # nobody waits for it any more
                loop.call_soon(undo, answer, context=ours)

        self._waiting[result] = None
        self._under_way += undo is not None
        if (late_s := max(0.0, self._redis.stalled_until_s - loop.time())) > 0:
            self._redis.watch.strikes["redis_stall"] += 1
        self._wire.send(lambda: self._redis.serve(act, name), RESPONSE_TIMEOUT_S, on_answer, late_s)
        try:
            return await result
        except asyncio.CancelledError:
            if undo is not None and not result.cancelled() and result.exception() is None:
                undo(result.result())  # it had come, and nobody had looked
            raise
        finally:
            self._waiting.pop(result, None)

    def _undo(self, ask: AdmitRequest, answer: AdmitResult) -> None:
        if isinstance(answer, GateRefusal):
            return
        if isinstance(answer, Admitted):
            unused = dict.fromkeys(range(len(answer.spent)), 0.0)
            self._spawn(self._undone(self.release(Release(answer, actual=unused))))
        else:
            self._spawn(self._undone(self.cancel(ask)))

    async def _undone(self, undo: Coroutine[Any, Any, object]) -> None:
        with suppress(LimiterUnavailableError):  # the lease ends by itself
            await undo

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="simulated-gate")
        self._tasks[id(task)] = task
        task.add_done_callback(lambda done: self._tasks.pop(id(done), None) and None)


def _fail(result: asyncio.Future[T], error: LimiterUnavailableError) -> None:
    if not result.done():
        result.set_exception(error)


def _unheard(how: HowItEnded) -> None:
    """The server does not care how its answer got home."""
