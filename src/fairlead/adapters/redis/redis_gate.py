"""The gate of the whole fleet on Redis: one run of one script decides all requests of a batch.

Requests that arrive while a batch is in flight form the next one. A grant for a cancelled caller is undone as
soon as it arrives. A request without a response counts as spent and is not repeated.

Spec: G1, G10, R25.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fairlead._core.clock import Clock
from fairlead._core.secret import Secret
from fairlead.adapters.redis.cluster import Cluster
from fairlead.adapters.redis.codec import RELEASE, CancelAdmission, Codec, Item, Request
from fairlead.adapters.redis.listener import GrantListener
from fairlead.adapters.redis.node import PARALLEL, GateParams, Node, ScriptRun, never
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
"""Items of one script run, which blocks the server for about a millisecond."""

_NOTHING_HELD = Released(was_held=True)


class RedisGate:
    """The FleetGate port on one Redis server or a cluster.

    Args:
        process: The name of this process towards the others; holders contain it.
        new: Whether this installation has granted nothing yet; called when a server is greeted.
        lease_s: The longest lease of a slot. After a data loss no slot is granted before it has passed.
        events: How many events of a pool are stored.
        spends: How many events of a bucket are stored.
        pinned_us: The time to use, for tests; 0: the server's clock.

    Spec: R23.
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
        self.params = GateParams(self._keys.prefix.encode(), lease_s, events, spends, pinned_us)
        self._seed = self._node(url, self._keys.marker.encode(), seed=True)
        self._cluster: Cluster | None = None
        self._batch: Batcher[Request, Any] = Batcher(
            self._send, max_size=MAX_BATCH, parallel=PARALLEL, name="gate", unclaimed=self._unclaimed
        )
        self._undoing: set[asyncio.Task[Any]] = set()

    def _node(self, url: Secret, marker: bytes, *, seed: bool = False) -> Node:
        return Node(url, marker, self.params, self._clock, is_new=self._is_new, seed=seed)

    # ---- the port ------------------------------------------------------------------------------

    def admit(self, request: AdmitRequest) -> Coroutine[Any, Any, AdmitResult]:
        """Take all parts of a plan in one step, or none."""
        return self._batch(request)

    async def release(self, release: Release) -> Released:
        """Release the slot, settle the buckets, and record the outcome in the breaker."""
        return await self._batch(release) if self._codec.needs_script(release) else _NOTHING_HELD

    def release_soon(self, release: Release, on_released: OnReleased) -> None:
        """Release in the next batch, without waiting, and call *on_released* with the outcome."""
        if self._codec.needs_script(release):
            self._batch.post(release, on_released)
        else:
            on_released(_NOTHING_HELD)

    async def cancel(self, request: AdmitRequest) -> None:
        """Leave the queue and return a grant or reservations that are no longer needed. Idempotent."""
        await self._batch(CancelAdmission(request))

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        """Renew leases and places in the queue, all in one batch."""
        leases: list[Lease] = await gather_all(*map(self._batch, renewals))
        return leases

    async def listen(self, wake: Wake) -> None:
        """Call *wake* for each grant to this process, until closed."""
        self.params.wake = wake
        listener = GrantListener(self._url, self._keys.channel(self._process), wake, self._clock)
        self._listening = asyncio.create_task(listener.run(), name="fairlead-gate-listener")

    async def close(self) -> None:
        """Send what is queued, undo grants without a caller, then close all connections."""
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
        """Return the result of each request, or its error.

        Requests are packed here, so that the next batch grows while the server runs this one. A request that
        cannot be packed does not affect the others.
        """
        try:
            items = list(map(self._codec.pack, requests))
        except Exception:  # noqa: BLE001 (returned to its own caller below)
            return await self._send_packable(requests)
        return await self._run(requests, items)

    async def _send_packable(self, requests: Sequence[Request]) -> Sequence[Any]:
        results: list[Any] = [None] * len(requests)
        good: dict[int, Item] = {}
        for index, request in enumerate(requests):
            try:
                good[index] = self._codec.pack(request)
            except Exception as error:  # noqa: BLE001
                results[index] = error
        answers = await self._run([requests[index] for index in good], list(good.values()))
        for index, answer in zip(good, answers, strict=True):
            results[index] = answer
        return results

    async def _run(self, requests: Sequence[Request], items: list[Item]) -> Sequence[Any]:
        read = self._codec.read
        if (cluster := self._cluster or await self._load_cluster()) is not None:
            return list(map(read, requests, await cluster.run(items)))
        order = _by_cell(items)
        if order is not None:
            items = [items[index] for index in order]
        (packed,) = await self._seed.run([ScriptRun(self._seed.marker, 0, items)])
        if isinstance(packed, Exception):
            raise packed
        if order is None:
            return list(map(read, requests, packed))
        results: list[Any] = [None] * len(items)
        for index, result in zip(order, packed, strict=True):
            results[index] = read(requests[index], result)
        return results

    async def _load_cluster(self) -> Cluster | None:
        """Return the cluster of the server; None if it is a single server."""
        await self._seed.ready()
        if not self._seed.in_cluster:
            return None
        cluster = Cluster(self._seed, self._url, self._node, self._keys, self._clock)
        await cluster.load_slots()
        self._cluster, self._is_new = self._cluster or cluster, never
        return self._cluster

    async def ping(self) -> None:
        """Wait until the server, or each one of a cluster, confirms that it accepts writes."""
        if (cluster := self._cluster or await self._load_cluster()) is not None:
            await cluster.ping()
        else:
            await self._seed.ping()

    def abandon(self, error: LimiterUnavailableError) -> None:
        """Fail all waiting callers with *error*; what their requests obtain is undone when it is known."""
        self._batch.abandon(error)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is in flight and nothing has to be undone."""
        return self._batch.is_idle and not self._undoing

    def _unclaimed(self, request: Request, answer: Any) -> None:
        """Undo a request without a caller. After an error it may still hold a reservation."""
        if not isinstance(request, AdmitRequest) or isinstance(answer, GateRefusal):
            return
        if isinstance(answer, Admitted):
            unused = dict.fromkeys(range(len(answer.spent)), 0.0)
            undo: Coroutine[Any, Any, object] = self.release(Release(answer, actual=unused))
        else:
            undo = self._cancel_with_retry(request)
        task: asyncio.Task[Any] = asyncio.create_task(undo)
        self._undoing.add(task)
        task.add_done_callback(self._undone)

    async def _cancel_with_retry(self, request: AdmitRequest) -> None:
        """Cancel, and retry once if the request was lost, because a reservation would stay until it expires."""
        try:
            await self.cancel(request)
        except LimiterUnavailableError:
            await self.cancel(request)

    def _undone(self, task: asyncio.Task[Any]) -> None:
        self._undoing.discard(task)
        if not task.cancelled():
            task.exception()  # not undone: the lease expires


def _by_cell(items: Sequence[Item]) -> list[int] | None:
    """Return an order of *items* in which those of one cell are adjacent, so it is read and written once.

    Releases come before the other items of a cell. None: no order is needed.
    """
    cells = [item.keys[0] for item in items]
    if len(set(cells)) in (1, len(cells)):
        return None
    return sorted(
        range(len(cells)),
        key=lambda index: (cells[index], items[index].body[0] != RELEASE, items[index].names),
    )
