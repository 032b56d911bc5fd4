"""The gate of the whole fleet: one script judges all that this process asks at the same time (G1, G10).

Asks that come while a batch is under way go together into the next one. What was asked and nobody waits for
any more (a cancelled caller) is undone as soon as its answer is there; an answer that never comes counts as
spent and is not asked again (R25).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain

from fairlead.adapters.redis.codec import Codec, Item, head, stamp
from fairlead.adapters.redis.greeting import Greeting
from fairlead.adapters.redis.link import Link
from fairlead.adapters.redis.listener import Listener
from fairlead.adapters.redis.scripts import script
from fairlead.clock import Clock
from fairlead.engine.batch import Batcher
from fairlead.engine.ports.gate import (
    Admitted,
    Answer,
    Ask,
    Finish,
    Finished,
    GateRefusal,
    Lease,
    Renewal,
    Wake,
)
from fairlead.errors import GateUnavailable
from fairlead.policy.gate.key import Keyspace
from fairlead.policy.gate.limit import MICRO
from fairlead.secret import Secret

MAX_BATCH = 128
"""Items of one script call: it keeps the server for itself for about a millisecond."""
PARALLEL = 2
"""Batches under way: while the server judges one, this process packs the next."""

_NOTHING_HELD = Finished(kept=True)


class RedisGate:
    """The Gate port on one server. *process*: who we are to the others; holders of ours name it, too.

    *new*: nothing was ever granted by this installation.

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
        new: bool = False,
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
        self._lease_s = lease_s
        self._events, self._spends = events, spends
        self.pinned_us = pinned_us
        self._marker = self._keys.marker.encode()
        self._prefix = self._keys.prefix.encode()
        self._ahead_us: float | None = None  # the server's clock less our monotonic one
        greeting = Greeting(self._keys.marker, new=new, lease_s=lease_s)
        self._pinger = Link(url, greeting)
        self._links = [Link(url, greeting) for _ in range(PARALLEL)]
        self._batch: Batcher[Item, bytes] = Batcher(
            self._send, max_size=MAX_BATCH, parallel=PARALLEL, name="gate", unclaimed=self._unclaimed
        )
        self._undoing: set[asyncio.Task[bytes]] = set()
        self._script = script("gate")

    # ---- the port ------------------------------------------------------------------------------

    async def admit(self, ask: Ask) -> Answer:
        """One step, all or nothing."""
        return self._codec.answer(ask, await self._batch(self._codec.admit(ask)))

    async def finish(self, finish: Finish) -> Finished:
        """Give back the slot, hand it on, settle the buckets, tell the breaker."""
        item = self._codec.finish(finish)
        return _NOTHING_HELD if item is None else self._codec.finished(await self._batch(item))

    async def cancel(self, ask: Ask) -> None:
        """Leave the line, give back a grant or turns that are no longer wanted. Idempotent."""
        await self._batch(self._codec.cancel(ask))

    async def renew(self, renewals: Sequence[Renewal]) -> list[Lease]:
        """Keep leases and places; one batch for a whole process."""
        told = await asyncio.gather(*(self._batch(self._codec.renew(renewal)) for renewal in renewals))
        return [self._codec.renewed(answer) for answer in told]

    async def listen(self, wake: Wake) -> None:
        """Call *wake* for each grant to this process, until closed."""
        listener = Listener(self._url, self._keys.channel(self._process), wake, self._clock)
        self._listening = asyncio.create_task(listener.run(), name="fairlead-gate-listener")

    async def close(self) -> None:
        """Send what waits, then let go."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait((self._listening,))
        await self._batch.close()
        for link in (*self._links, self._pinger):
            await link.drop()

    # ---- batches -------------------------------------------------------------------------------

    async def _send(self, items: Sequence[Item]) -> Sequence[bytes]:
        link = self._links.pop()
        try:
            sent_s = self._clock.monotonic()
            keys = [self._marker, *chain.from_iterable(item.keys for item in items)]
            args = [self._head(sent_s), self._prefix]
            for item in items:
                args += (item.plan, item.names, item.ask, item.holder)
            told = await link.run(self._script, keys, args)
            self._learn(told[0], sent_s)
            answers: Sequence[bytes] = told[1:]
            return answers
        except GateUnavailable:
            self._lost(link)
            raise
        finally:
            self._links.append(link)

    def _lost(self, link: Link) -> None:
        """What ended *link* has ended the idle ones, too: no later batch may find one dead."""
        if not link.is_ready:
            for idle in self._links:
                idle.doubt()

    def _head(self, sent_s: float) -> bytes:
        expected_us = 0 if self._ahead_us is None else round(sent_s * MICRO + self._ahead_us)
        return head(
            expected_us=0 if self.pinned_us else expected_us,
            pinned_us=self.pinned_us,
            lease_s=self._lease_s,
            events=self._events,
            spends=self._spends,
        )

    def _learn(self, told: bytes, sent_s: float) -> None:
        """The server's clock was read between sending and now."""
        now_us, _ = stamp(told)
        self._ahead_us = now_us - (sent_s + self._clock.monotonic()) / 2 * MICRO

    async def ping(self) -> None:
        """Return once the server has said that it may be written to, on a connection of its own.

        Full servers and replicas answer a PING, too. This changes nothing, and only they refuse it.
        """
        try:
            await self._pinger.call("SETRANGE", self._marker, 0, b"")
        except GateUnavailable:
            self._lost(self._pinger)
            raise

    def abandon(self, error: GateUnavailable) -> None:
        """Fail all who wait for an answer; what comes of their asks is undone when it is known."""
        self._batch.abandon(error)

    def _unclaimed(self, item: Item, told: bytes) -> None:
        ask = item.undo
        if ask is None:
            return
        answer = self._codec.answer(ask, told)
        if isinstance(answer, GateRefusal):
            return
        if isinstance(answer, Admitted):
            unused = dict.fromkeys(range(len(answer.spent)), 0.0)
            undo = self._codec.finish(Finish(answer, actual=unused))
        else:
            undo = self._codec.cancel(ask)
        if undo is None:
            return
        task = asyncio.ensure_future(self._batch(undo))
        self._undoing.add(task)
        task.add_done_callback(self._undone)

    def _undone(self, task: asyncio.Task[bytes]) -> None:
        self._undoing.discard(task)
        if not task.cancelled():
            task.exception()  # not undone: the lease ends by itself
