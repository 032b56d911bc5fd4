"""The gate of the whole fleet: one script judges all that this process asks at the same time (G1, G10).

Asks that come while a batch is under way go together into the next one. What was asked and nobody waits for
any more (a cancelled caller) is undone as soon as its answer is there; an answer that never comes counts as
spent and is not asked again (R25).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fairlead._core.clock import Clock
from fairlead._core.secret import Secret
from fairlead.adapters.redis.cluster import Cluster
from fairlead.adapters.redis.codec import FINISH, Cancel, Codec, Item, Request
from fairlead.adapters.redis.listener import Listener
from fairlead.adapters.redis.node import PARALLEL, Call, Node, Terms, never
from fairlead.engine.base.batch import Batcher
from fairlead.engine.base.timing import gather_all
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
from fairlead.policy.limits.key import Keyspace

MAX_BATCH = 128
"""Items of one script call: it keeps the server for itself for about a millisecond."""

_NOTHING_HELD = Released(was_held=True)


class RedisGate:
    """The Gate port on one server or a cluster. *process*: who we are to the others; holders name it, too.

    *new*: nothing was ever granted by this installation; asked when a server is met.

    *lease_s*: the longest lease of a slot; after a loss no slot is granted before it has passed (R23).
    *events*: how many events of a pool are kept. *pinned_us* sets the clock for tests.
    """

    def __init__(
        self,
        url: Secret,
        *,
        clock: Clock,
        process: str = "-",
        keys: Keyspace | None = None,
        new: bool | Callable[[], bool] = False,
        lease_s: float = 30.0,
        events: int = 0,
        spends: int = 0,
        pinned_us: int = 0,
    ) -> None:
        self._keys = keys or Keyspace()
        self._codec = Codec(self._keys)
        self._clock = clock
        self._url = url
        self._process = process
        self._listening: asyncio.Task[None] | None = None
        self._is_new = new if callable(new) else lambda: new
        self.terms = Terms(self._keys.prefix.encode(), lease_s, events, spends, pinned_us)
        self._seed = self._node(url, self._keys.marker.encode(), seed=True)
        self._cluster: Cluster | None = None
        self._batch: Batcher[Request, Any] = Batcher(
            self._send, max_size=MAX_BATCH, parallel=PARALLEL, name="gate", unclaimed=self._unclaimed
        )
        self._undoing: set[asyncio.Task[Any]] = set()

    def _node(self, url: Secret, marker: bytes, *, seed: bool = False) -> Node:
        return Node(url, marker, self.terms, self._clock, is_new=self._is_new, seed=seed)

    # ---- the port ------------------------------------------------------------------------------

    def admit(self, ask: AdmitRequest) -> Coroutine[Any, Any, AdmitResult]:
        """One step, all or nothing."""
        return self._batch(ask)

    async def release(self, release: Release) -> Released:
        """Give back the slot, hand it on, settle the buckets, tell the breaker."""
        return await self._batch(release) if self._codec.tells(release) else _NOTHING_HELD

    def release_soon(self, release: Release, told: OnReleased) -> None:
        """The same in the next batch, which waits for the one under way and is waited for by the next."""
        if self._codec.tells(release):
            self._batch.post(release, told)
        else:
            told(_NOTHING_HELD)

    async def cancel(self, ask: AdmitRequest) -> None:
        """Leave the line, give back a grant or turns that are no longer wanted. Idempotent."""
        await self._batch(Cancel(ask))

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        """Keep leases and places; one batch for a whole process."""
        leases: list[Lease] = await gather_all(*map(self._batch, renewals))
        return leases

    async def listen(self, wake: Wake) -> None:
        """Call *wake* for each grant to this process, until closed."""
        self.terms.wake = wake
        listener = Listener(self._url, self._keys.channel(self._process), wake, self._clock)
        self._listening = asyncio.create_task(listener.run(), name="fairlead-gate-listener")

    async def close(self) -> None:
        """Send what waits, undo what nobody waits for, then let go."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait((self._listening,))
        await self._batch.drained()
        while self._undoing:
            await asyncio.wait(self._undoing)
        await self._batch.close()
        await self._seed.close()
        if self._cluster is not None:
            await self._cluster.close()

    # ---- batches -------------------------------------------------------------------------------

    async def _send(self, requests: Sequence[Request]) -> Sequence[Any]:
        """What each request is told, as its own kind of answer, or the error that it met.

        They are packed here: while the server judges this batch, those of the next one wait as they are. One
        that cannot be packed is nobody else's trouble.
        """
        try:
            items = list(map(self._codec.pack, requests))
        except Exception:  # noqa: BLE001 (whatever it is, it is told to whom it concerns)
            return await self._sorted_out(requests)
        return await self._judged(requests, items)

    async def _sorted_out(self, requests: Sequence[Request]) -> Sequence[Any]:
        told: list[Any] = [None] * len(requests)
        good: dict[int, Item] = {}
        for place, request in enumerate(requests):
            try:
                good[place] = self._codec.pack(request)
            except Exception as error:  # noqa: BLE001
                told[place] = error
        answers = await self._judged([requests[place] for place in good], list(good.values()))
        for place, answer in zip(good, answers, strict=True):
            told[place] = answer
        return told

    async def _judged(self, requests: Sequence[Request], items: list[Item]) -> Sequence[Any]:
        read = self._codec.read
        if (cluster := self._cluster or await self._met()) is not None:
            return list(map(read, requests, await cluster.judge(items)))
        order = _by_cell(items)
        if order is not None:
            items = [items[place] for place in order]
        (told,) = await self._seed.judge([Call(self._seed.marker, 0, items)])
        if isinstance(told, Exception):
            raise told
        if order is None:
            return list(map(read, requests, told))
        answers: list[Any] = [None] * len(items)
        for place, answer in zip(order, told, strict=True):
            answers[place] = read(requests[place], answer)
        return answers

    async def _met(self) -> Cluster | None:
        """The cluster that the server belongs to; None: it stands alone."""
        await self._seed.ready()
        if not self._seed.in_cluster:
            return None
        cluster = Cluster(self._seed, self._url, self._node, self._keys, self._clock)
        await cluster.learn()
        self._cluster, self._is_new = self._cluster or cluster, never
        return self._cluster

    async def ping(self) -> None:
        """Return once the server, or each of a cluster, has said that it may be written to."""
        if (cluster := self._cluster or await self._met()) is not None:
            await cluster.ping()
        else:
            await self._seed.ping()

    def abandon(self, error: LimiterUnavailableError) -> None:
        """Fail all who wait for an answer; what comes of their asks is undone when it is known."""
        self._batch.abandon(error)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way, nor to be undone."""
        return self._batch.is_idle and not self._undoing

    def _unclaimed(self, request: Request, answer: Any) -> None:
        """Undo an ask whose caller is gone. After an error it may have a reservation."""
        if not isinstance(request, AdmitRequest) or isinstance(answer, GateRefusal):
            return
        if isinstance(answer, Admitted):
            unused = dict.fromkeys(range(len(answer.spent)), 0.0)
            undo: Coroutine[Any, Any, object] = self.release(Release(answer, actual=unused))
        else:
            undo = self._cancelled(request)
        task: asyncio.Task[Any] = asyncio.create_task(undo)
        self._undoing.add(task)
        task.add_done_callback(self._undone)

    async def _cancelled(self, ask: AdmitRequest) -> None:
        """Cancel, and try once more if the first request got lost: a reservation lasts until it is read."""
        try:
            await self.cancel(ask)
        except LimiterUnavailableError:
            await self.cancel(ask)

    def _undone(self, task: asyncio.Task[Any]) -> None:
        self._undoing.discard(task)
        if not task.cancelled():
            task.exception()  # not undone: the lease ends by itself


def _by_cell(items: Sequence[Item]) -> list[int] | None:
    """The places of *items* so that those of one plan follow each other: its cell is read and written once.

    What has ended stands before what else is said of it. None: they need no order.
    """
    cells = [item.keys[0] for item in items]
    if len(set(cells)) in (1, len(cells)):
        return None
    return sorted(
        range(len(cells)), key=lambda place: (cells[place], items[place].ask[0] != FINISH, items[place].names)
    )
