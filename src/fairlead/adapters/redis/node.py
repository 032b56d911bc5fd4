"""One server: the connections to it, what their greetings told, and the batches that it judges.

A greeting asks who the server is (a restart or a fail-over shows in the run id), whether it may be used at
all (R23, R29), and since when nothing was lost on it. What the last one told is said with each batch.

With each batch goes, too, what time we think it is there. A server that has another does nothing and says so:
the batch was held up on its way, or the server's clock was set. What we hear, and when, tells which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from fairlead._core.clock import Clock
from fairlead._core.secret import Secret
from fairlead.adapters.redis.codec import Item, arguments, head, stamp
from fairlead.adapters.redis.connection import RedisConnection, unavailable
from fairlead.adapters.redis.listener import wake
from fairlead.adapters.redis.scripts import script
from fairlead.engine.ports import Wake
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.limit import MICRO

PARALLEL = 2
"""Batches under way: while the server judges one, this process packs the next."""
TRIES = 3
"""How often a batch is sent that the server heard too late to do anything."""
KNOWN_US = MICRO
"""So near we know the server's clock, or do not say that we know it."""
DRIFT_US = 500
"""In a second, at most, of two clocks that are kept right: who asked nothing for hours knows it less well."""
LEASE_ID = 16
"""Characters of a lease id on the wire."""
NEW_US = 1
"""The birth of an installation that never granted anything: all that is missing is full."""


def never() -> bool:
    """What a server that was not always there is no sign of."""
    return False


@dataclass(slots=True)
class Terms:
    """What holds for every batch of a gate. *pinned_us* sets the clock, for tests; 0: the server's own.

    *lease_s*: the longest lease of a slot. *events*: how many events of a pool are kept, *spends*: of a
    bucket.
    """

    prefix: bytes
    lease_s: float
    events: int
    spends: int
    pinned_us: int
    wake: Wake = lambda lease_id: None
    """Called with each lease that one of the gate's own batches handed a slot."""


class Call(NamedTuple):
    """One run of the script: items that one marker vouches for. *hint_us*: its birth where it is missing."""

    marker: bytes
    hint_us: int
    items: Sequence[Item]


class Node:
    """*marker*: the key that tells whether it was emptied. *is_new*: whether nothing was ever granted; said
    once, when it is met first, heard or not: from then on a missing marker is a loss.

    *seed*: it may turn out to be one of a cluster, to which others lead.
    """

    def __init__(
        self,
        url: Secret,
        marker: bytes,
        terms: Terms,
        clock: Clock,
        *,
        is_new: Callable[[], bool] = never,
        seed: bool = False,
    ) -> None:
        self.marker = marker
        self.birth_us = 0
        """Since when nothing was lost here."""
        self.in_cluster = False
        self.run_id = b""
        self.peers: Callable[[], Iterable[Node]] = tuple
        """The other primaries of its cluster: what comes from a living one was not lost."""
        self._is_new = is_new
        self._hint_us = 0
        self._seed = seed
        self._terms = terms
        self._clock = clock
        self._ahead_us: float | None = None  # the server's clock less our monotonic one
        self._known_s = self._learned_s = 0.0  # since when that is known, and when it was last corrected
        self._script = script("gate")
        self._pinger = RedisConnection(url, self._greet)
        self._pinging = asyncio.Lock()
        self._link = partial(RedisConnection, url, self._greet)
        self._links: list[RedisConnection] = []
        """The idle ones. One batch may ask a server of a cluster twice, while a slot is on its way there."""

    async def ready(self) -> None:
        """Return once it was greeted. LimiterUnavailableError where it must not be used."""
        if not self._pinger.is_ready:
            async with self._pinging:
                await self._pinger.ready()

    def vouch(self, marker: bytes) -> None:
        """Go by another marker from now on: the last one's slot belongs to another server."""
        self.marker, self._hint_us = marker, self.birth_us

    async def judge(
        self, calls: Sequence[Call], *, asking: bool = False
    ) -> list[Sequence[bytes] | Exception]:
        """What the script says to the items of each call, or what became of the call.

        LimiterUnavailableError where the connection is lost: each call may have been run or not. Where some had their
        answers by then, it stands in the places of the others.
        """
        link = self._links.pop() if self._links else self._link()
        try:
            await link.ready()
            told = await self._told(link, calls, asking)
            self._lost(link)
            return told
        except LimiterUnavailableError:
            self._lost(link)
            raise
        finally:
            self._links.append(link)

    async def ask(self, *command: Any) -> Any:
        """The answer to a command that is no script, beside the batches."""
        async with self._pinging:
            return await self._pinger.call(*command)

    async def ping(self) -> None:
        """Return once the server has said that it may be written to.

        Full servers and replicas answer a PING, too. This changes nothing, and only they refuse it.
        """
        async with self._pinging:
            try:
                if await self._pinger.call("SETRANGE", self.marker, 0, b"") == 0:
                    await self._meet(self._pinger)  # it was emptied
            except LimiterUnavailableError:
                self._lost(self._pinger)
                raise

    async def close(self) -> None:
        """Let go of all connections."""
        for link in (*self._links, self._pinger):
            await link.drop()

    # ---- greetings -----------------------------------------------------------------------------

    async def _greet(self, link: RedisConnection) -> None:
        server = _info(await link.call("INFO", "server"))
        memory = _info(await link.call("INFO", "memory"))
        policy = memory.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise LimiterUnavailableError(
                f"Redis may drop keys when it is full: maxmemory-policy is {policy}",
                hint="set maxmemory-policy noeviction; a dropped limit lets calls through that must not go",
            )
        self.run_id = server.get("run_id", "").encode()
        self.in_cluster = "cluster" in (server.get("server_mode"), server.get("redis_mode"))
        if not (self.in_cluster and self._seed):
            await self._meet(link)

    async def _meet(self, link: RedisConnection) -> None:
        """Learn since when nothing was lost, and what time it is there; and leave the marker."""
        hint_us = NEW_US if self._is_new() else self._hint_us
        self._is_new, self._hint_us = never, 0
        sent_s = self._clock.monotonic()
        (told,) = await link.run(self._script, [self._command(Call(self.marker, hint_us, ()))])
        if isinstance(told, Exception):
            raise told if isinstance(told, LimiterUnavailableError) else unavailable(told)
        now_us, self.birth_us = stamp(told[0])
        if self._ahead_us is None:  # else a clock that was set is what the next batch finds out
            self._learn(now_us, sent_s)

    def _lost(self, link: RedisConnection) -> None:
        """Where *link* has ended, so have the idle ones: no later batch may find one dead.

        Meanwhile this machine may have slept, and its clock stood still: the time is asked anew.
        """
        if not link.is_ready:
            self._ahead_us = None
            for idle in self._links:
                idle.doubt()

    # ---- batches -------------------------------------------------------------------------------

    async def _told(
        self, link: RedisConnection, calls: Sequence[Call], asking: bool
    ) -> list[Sequence[bytes] | Exception]:
        """What each call is told. Those with which nothing was done are sent again.

        A connection that breaks then is no reason to forget what the others were told: they may have a slot.
        """
        answers: list[Sequence[bytes] | Exception] = [()] * len(calls)
        left = dict.fromkeys(range(len(calls)), 0)  # the births that are doubted, by place
        for _ in range(TRIES):
            sent_s = self._clock.monotonic()
            commands = [self._command(calls[place], sent_s, left[place]) for place in left]
            try:
                told = await link.run(self._script, commands, asking=asking)
            except LimiterUnavailableError as error:
                if len(left) == len(calls):
                    raise
                told = [error] * len(left)
            again = {}
            for place, each in zip(left, told, strict=True):
                if isinstance(each, bytes):  # the time alone
                    again[place] = self._doubted(calls[place], each, sent_s)
                else:
                    failed = isinstance(each, Exception)
                    answers[place] = each if failed else self._heard(calls[place], each, sent_s)
            if not again:
                return answers
            left = again
        for place in left:
            answers[place] = LimiterUnavailableError("Redis hears what it is asked too late")
        return answers

    def _command(
        self, call: Call, sent_s: float | None = None, doubted_us: int = 0
    ) -> tuple[list[bytes], list[bytes]]:
        """*sent_s*: it says what time we think it is there."""
        terms = self._terms
        expected_us = known_us = 0
        if sent_s is not None and self._ahead_us is not None and not terms.pinned_us:
            expected_us = round(sent_s * MICRO + self._ahead_us)
            known_us = round((sent_s - self._known_s) * MICRO)
        start = head(
            expected_us=expected_us,
            pinned_us=terms.pinned_us,
            hint_us=call.hint_us,
            lease_s=terms.lease_s,
            events=terms.events,
            spends=terms.spends,
            doubted_us=doubted_us,
            known_us=known_us,
            run_ids=self.run_id + b"".join(node.run_id for node in self.peers()),
        )
        keys, args = [call.marker], [start, terms.prefix]
        arguments(call.items, keys, args)
        return keys, args

    def _heard(self, call: Call, told: Sequence[bytes], sent_s: float) -> Sequence[bytes]:
        """The answers to the items."""
        now_us, birth_us = stamp(told[0])
        if call.marker == self.marker:
            self.birth_us = birth_us
        self._learn(now_us, sent_s)
        end = len(call.items) + 1
        for granted in told[end:]:  # these need no channel
            for start in range(0, len(granted), LEASE_ID):
                wake(self._terms.wake, granted[start : start + LEASE_ID])
        return told[1:end]

    def _doubted(self, call: Call, told: bytes, sent_s: float) -> int:
        """0 where the call may have been late; else the clock was set since the server told of this birth."""
        now_us, birth_us = stamp(told)
        least_us, most_us = self._between(now_us, sent_s)
        near_us = KNOWN_US + (sent_s - self._learned_s) * DRIFT_US
        if self._ahead_us is None or least_us - near_us <= self._ahead_us <= most_us + near_us:
            self._learn(now_us, sent_s)
            return 0
        self._known_s = sent_s
        return (self.birth_us if call.marker == self.marker else birth_us) or NEW_US

    def _learn(self, now_us: int, sent_s: float) -> None:
        """Correct what was known of the server's clock, as far as it cannot be."""
        least_us, most_us = self._between(now_us, sent_s)
        self._learned_s = sent_s
        if self._ahead_us is not None:
            self._ahead_us = min(max(self._ahead_us, least_us), most_us)
        elif most_us - least_us < KNOWN_US:
            self._ahead_us, self._known_s = (least_us + most_us) / 2, sent_s

    def _between(self, now_us: int, sent_s: float) -> tuple[float, float]:
        """The least and the most that the server's clock is ahead: it was read between sending and now.

        How long ago says nobody: this process may have been frozen meanwhile.
        """
        return now_us - self._clock.monotonic() * MICRO, now_us - sent_s * MICRO


def _info(told: Any) -> Mapping[str, str]:
    """The lines of an INFO section."""
    text = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
    pairs = (line.split(":", 1) for line in text.split("\n") if ":" in line and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}
