"""One Redis server: its connections, the state read when one is greeted, and the batches it runs.

A greeting reads three things: the run id, in which a restart or a failover shows; whether the gate may use
the server at all; and since when it has lost no data. Each batch carries the run id.

Each batch also carries the time that this process expects on the server. If the server's clock differs, the
script does nothing and returns the server's time: either the batch was delayed on its way, or the server's
clock was set. The time at which that response arrives shows which of the two happened.

Spec: R23, R29.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from fairlead._core.clock import Clock
from fairlead._core.secret import Secret
from fairlead.adapters.redis.codec import Item, add_arguments, head, read_stamp
from fairlead.adapters.redis.connection import RedisConnection, unavailable
from fairlead.adapters.redis.listener import wake
from fairlead.adapters.redis.scripts import script
from fairlead.engine.ports import Wake
from fairlead.errors import LimiterUnavailableError
from fairlead.policy.limits.limit import MICRO

PARALLEL = 2
"""Batches in flight: while the server runs one, this process packs the next."""
TRIES = 3
"""The most times that a batch is sent which reaches the server too late to be run."""
KNOWN_US = MICRO
"""The server's clock counts as known once its offset is known to within this."""
DRIFT_US = 500
"""The most by which two synchronised clocks drift apart in a second."""
LEASE_ID = 16
"""Characters of a lease id on the wire."""
NEW_US = 1
"""The birth of an installation that has granted nothing yet: every missing bucket is full."""


def never() -> bool:
    """Return False: the `is_new` of a server that is not new."""
    return False


@dataclass(slots=True)
class GateParams:
    """The parameters that every batch of a gate carries.

    Attributes:
        lease_s: The longest lease of a slot.
        events: How many events of a pool are stored.
        spends: How many events of a bucket are stored.
        pinned_us: The time to use, for tests; 0: the server's own clock.
        wake: Called with each lease that a batch of this gate granted a slot to.
    """

    prefix: bytes
    lease_s: float
    events: int
    spends: int
    pinned_us: int
    wake: Wake = lambda lease_id: None


class ScriptRun(NamedTuple):
    """One run of the script: items covered by one marker. *hint_us*: its birth if the marker is missing."""

    marker: bytes
    hint_us: int
    items: Sequence[Item]


class Node:
    """A server and the connections to it.

    Args:
        marker: The key that shows whether the server was emptied.
        is_new: Whether the installation has granted nothing yet. Called once, at the first greeting: after
            that a missing marker is a loss.
        seed: Whether the server may turn out to be one of a cluster, through which the others are found.
    """

    def __init__(
        self,
        url: Secret,
        marker: bytes,
        params: GateParams,
        clock: Clock,
        *,
        is_new: Callable[[], bool] = never,
        seed: bool = False,
    ) -> None:
        self.marker = marker
        self.birth_us = 0
        """Since when the server has lost no data."""
        self.in_cluster = False
        self.run_id = b""
        self.peers: Callable[[], Iterable[Node]] = tuple
        """The other primaries of its cluster: keys that moved here from a living one are not lost."""
        self._is_new = is_new
        self._hint_us = 0
        self._seed = seed
        self._params = params
        self._clock = clock
        self._offset_us: float | None = None  # the server's clock minus our monotonic clock
        self._known_since_mono = 0.0  # when the offset became known
        self._corrected_mono = 0.0  # when the offset was last corrected
        self._script = script("gate")
        self._control = RedisConnection(url, self._greet)
        self._control_lock = asyncio.Lock()
        self._connect = partial(RedisConnection, url, self._greet)
        self._idle: list[RedisConnection] = []
        """Idle connections. One batch may use two to a cluster node while a slot is moving there."""

    async def ready(self) -> None:
        """Wait until the server was greeted; raise LimiterUnavailableError if the gate must not use it."""
        if not self._control.is_ready:
            async with self._control_lock:
                await self._control.ready()

    def use_marker(self, marker: bytes) -> None:
        """Use *marker* from now on, because the hash slot of the last one moved to another server."""
        self.marker, self._hint_us = marker, self.birth_us

    async def run(
        self, runs: Sequence[ScriptRun], *, asking: bool = False
    ) -> list[Sequence[bytes] | Exception]:
        """Run the script for each of *runs*; return the results of its items, or the error of the run.

        If the connection is lost after some responses arrived, the error stands in the places of the others.

        Raises:
            LimiterUnavailableError: The connection was lost before any response. Each run may have happened.
        """
        connection = self._idle.pop() if self._idle else self._connect()
        try:
            await connection.ready()
            results = await self._run_on_time(connection, runs, asking)
            self._expire_idle(connection)
            return results
        except LimiterUnavailableError:
            self._expire_idle(connection)
            raise
        finally:
            self._idle.append(connection)

    async def call(self, *command: Any) -> Any:
        """Return the response to a command that is not a script, sent beside the batches."""
        async with self._control_lock:
            return await self._control.call(*command)

    async def ping(self) -> None:
        """Wait until the server confirms that it accepts writes.

        Full servers and replicas respond to PING as well. This command changes nothing, and they reject it.
        """
        async with self._control_lock:
            try:
                if await self._control.call("SETRANGE", self.marker, 0, b"") == 0:
                    await self._read_marker(self._control)  # the server was emptied
            except LimiterUnavailableError:
                self._expire_idle(self._control)
                raise

    async def close(self) -> None:
        """Close all connections."""
        for connection in (*self._idle, self._control):
            await connection.disconnect()

    # ---- greetings -----------------------------------------------------------------------------

    async def _greet(self, connection: RedisConnection) -> None:
        server = _info(await connection.call("INFO", "server"))
        memory = _info(await connection.call("INFO", "memory"))
        policy = memory.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise LimiterUnavailableError(
                f"Redis may drop keys when it is full: maxmemory-policy is {policy}",
                hint="set maxmemory-policy noeviction; a dropped limit lets calls through that must not go",
            )
        self.run_id = server.get("run_id", "").encode()
        self.in_cluster = "cluster" in (server.get("server_mode"), server.get("redis_mode"))
        if not (self.in_cluster and self._seed):
            await self._read_marker(connection)

    async def _read_marker(self, connection: RedisConnection) -> None:
        """Read since when the server has lost no data, and its time; write the marker if it is missing."""
        hint_us = NEW_US if self._is_new() else self._hint_us
        self._is_new, self._hint_us = never, 0
        sent_mono = self._clock.monotonic()
        (result,) = await connection.run(self._script, [self._command(ScriptRun(self.marker, hint_us, ()))])
        if isinstance(result, Exception):
            raise result if isinstance(result, LimiterUnavailableError) else unavailable(result)
        now_us, self.birth_us = read_stamp(result[0])
        if self._offset_us is None:  # otherwise the next batch finds out whether the clock was set
            self._correct_offset(now_us, sent_mono)

    def _expire_idle(self, connection: RedisConnection) -> None:
        """Make the idle connections reconnect before their next use, if *connection* is lost.

        Meanwhile this machine may have been suspended, with its monotonic clock stopped, so the offset of the
        server's clock is unknown again.
        """
        if not connection.is_ready:
            self._offset_us = None
            for idle in self._idle:
                idle.require_reconnect()

    # ---- batches -------------------------------------------------------------------------------

    async def _run_on_time(
        self, connection: RedisConnection, runs: Sequence[ScriptRun], asking: bool
    ) -> list[Sequence[bytes] | Exception]:
        """Run *runs*, and repeat those of which nothing was done because they were late.

        If the connection breaks during a repetition, the earlier results are returned: they may hold slots.
        """
        results: list[Sequence[bytes] | Exception] = [()] * len(runs)
        pending = dict.fromkeys(range(len(runs)), 0)  # index -> the birth that is in doubt
        for _ in range(TRIES):
            sent_mono = self._clock.monotonic()
            commands = [self._command(runs[i], sent_mono, pending[i]) for i in pending]
            try:
                responses = await connection.run(self._script, commands, asking=asking)
            except LimiterUnavailableError as error:
                if len(pending) == len(runs):
                    raise
                responses = [error] * len(pending)
            late = {}
            for i, response in zip(pending, responses, strict=True):
                if isinstance(response, bytes):  # the time alone
                    late[i] = self._doubtful_birth(runs[i], response, sent_mono)
                else:
                    failed = isinstance(response, Exception)
                    results[i] = response if failed else self._item_results(runs[i], response, sent_mono)
            if not late:
                return results
            pending = late
        for i in pending:
            results[i] = LimiterUnavailableError("Redis receives requests too late")
        return results

    def _command(
        self, run: ScriptRun, sent_mono: float | None = None, doubted_us: int = 0
    ) -> tuple[list[bytes], list[bytes]]:
        """Return keys and arguments of *run*. With *sent_mono* they state the time expected on the server."""
        params = self._params
        expected_us = known_us = 0
        if sent_mono is not None and self._offset_us is not None and not params.pinned_us:
            expected_us = round(sent_mono * MICRO + self._offset_us)
            known_us = round((sent_mono - self._known_since_mono) * MICRO)
        start = head(
            expected_us=expected_us,
            pinned_us=params.pinned_us,
            hint_us=run.hint_us,
            lease_s=params.lease_s,
            events=params.events,
            spends=params.spends,
            doubted_us=doubted_us,
            known_us=known_us,
            run_ids=self.run_id + b"".join(node.run_id for node in self.peers()),
        )
        keys, args = [run.marker], [start, params.prefix]
        add_arguments(run.items, keys, args)
        return keys, args

    def _item_results(self, run: ScriptRun, response: Sequence[bytes], sent_mono: float) -> Sequence[bytes]:
        """Return the results of the items; wake the calls of this process that were granted a slot."""
        now_us, birth_us = read_stamp(response[0])
        if run.marker == self.marker:
            self.birth_us = birth_us
        self._correct_offset(now_us, sent_mono)
        end = len(run.items) + 1
        for lease_ids in response[end:]:  # these are not published
            for start in range(0, len(lease_ids), LEASE_ID):
                wake(self._params.wake, lease_ids[start : start + LEASE_ID])
        return response[1:end]

    def _doubtful_birth(self, run: ScriptRun, response: bytes, sent_mono: float) -> int:
        """Return 0 if *run* may have been late, else the birth since which the server's clock was set."""
        now_us, birth_us = read_stamp(response)
        least_us, most_us = self._offset_bounds(now_us, sent_mono)
        tolerance_us = KNOWN_US + (sent_mono - self._corrected_mono) * DRIFT_US
        if self._offset_us is None or least_us - tolerance_us <= self._offset_us <= most_us + tolerance_us:
            self._correct_offset(now_us, sent_mono)
            return 0
        self._known_since_mono = sent_mono
        return (self.birth_us if run.marker == self.marker else birth_us) or NEW_US

    def _correct_offset(self, now_us: int, sent_mono: float) -> None:
        """Move the known offset of the server's clock into the bounds that this response shows."""
        least_us, most_us = self._offset_bounds(now_us, sent_mono)
        self._corrected_mono = sent_mono
        if self._offset_us is not None:
            self._offset_us = min(max(self._offset_us, least_us), most_us)
        elif most_us - least_us < KNOWN_US:
            self._offset_us, self._known_since_mono = (least_us + most_us) / 2, sent_mono

    def _offset_bounds(self, now_us: int, sent_mono: float) -> tuple[float, float]:
        """Return the least and the most offset: the clock was read between sending and now.

        A narrower bound is not possible, because this process may have been frozen in between.
        """
        return now_us - self._clock.monotonic() * MICRO, now_us - sent_mono * MICRO


def _info(response: Any) -> Mapping[str, str]:
    """Return the fields of an INFO section."""
    text = response.decode("utf-8", "replace") if isinstance(response, bytes) else str(response)
    pairs = (line.split(":", 1) for line in text.split("\n") if ":" in line and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}
