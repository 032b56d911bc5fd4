"""Wires the gate, for the runtime, the benchmarks and the experiments alike."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID
from zlib import crc32

from fairlead._core.clock import Clock, Draw
from fairlead._core.ids import Ids
from fairlead._core.secret import Secret
from fairlead.adapters.local.local_gate import LocalGate
from fairlead.adapters.local.null_gate import NullFleetGate
from fairlead.adapters.local.system import epoch_s
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.gate_notes import PostgresGateNotes
from fairlead.adapters.postgres.gate_overrides import PostgresOverrideStore
from fairlead.adapters.postgres.worker_sessions import PostgresSessionStore
from fairlead.adapters.redis import APPEND_ADVICE, redis_info
from fairlead.adapters.redis.admin import RedisAdmin
from fairlead.adapters.redis.data_loss import RedisDataLoss
from fairlead.adapters.redis.inspector import RedisInspector
from fairlead.adapters.redis.keys import RedisKeys
from fairlead.adapters.redis.redis_gate import RedisGate
from fairlead.engine.base.service import Service
from fairlead.engine.base.timing import LEAVE_S, TimeLimit
from fairlead.engine.limits.admitter import Admitter
from fairlead.engine.limits.bulk_slots import BulkAdmitter
from fairlead.engine.limits.call_admitter import CallAdmitter
from fairlead.engine.limits.failover_gate import FailoverGate
from fairlead.engine.limits.first_use import FirstUse
from fairlead.engine.limits.fleet_size import FleetSize
from fairlead.engine.limits.gate_maintenance import GateMaintenance
from fairlead.engine.limits.learned_limits import LearnedLimitsWriter
from fairlead.engine.limits.lease_renewer import LeaseRenewer
from fairlead.engine.limits.limit_plans import Plans
from fairlead.engine.limits.local_breakers import LocalBreakers
from fairlead.engine.limits.orphaned_leases import OrphanSearch
from fairlead.engine.limits.override_cache import Overrides
from fairlead.engine.ports import GateInspector, GateKeys
from fairlead.errors import DependencyUnavailableError, InvalidConfigError
from fairlead.events import Emit, GateNotPersistent
from fairlead.policy.limits.bulk_token import UNTIED
from fairlead.policy.limits.key import Keyspace
from fairlead.policy.limits.limit import MICRO, Domain
from fairlead.policy.limits.share import Share
from fairlead.policy.providers.profile import Profile

WHOLE_SHARE = Share(1, 0)
"""All of each limit: the share of the only process."""


@dataclass(frozen=True, slots=True)
class GateSettings:
    """How one process uses the gate.

    Attributes:
        prefix: The beginning of all Redis keys.
        new: Whether this installation never granted a slot. Evaluated when a Redis server is first used.
        lease_s: The longest lease of a slot, in seconds.
        beat_s: The seconds between two renewals of the leases.
        events: How many events of each pool Redis stores. Default: only rare ones.
        spends: How many events of each bucket Redis stores. Default none.
    """

    prefix: str = "fairlead"
    new: bool | Callable[[], bool] = False
    lease_s: float = 30.0
    beat_s: float = 3.0
    events: int = 0
    spends: int = 0


class GateCore:
    """The gate of one process, without any use of PostgreSQL. Its services must run while it is used.

    Attributes:
        admitter: Admits calls, with leases that end with this process.
        untied: Admits bulk operations, with leases that may outlive this process.
    """

    def __init__(
        self,
        url: Secret | None,
        *,
        process: str,
        clock: Clock,
        draw: Draw,
        ids: Ids,
        emit: Emit,
        share: Callable[[], Share] = lambda: WHOLE_SHARE,
        settings: GateSettings = GateSettings(),
    ) -> None:
        """Create the objects without connecting.

        Args:
            url: The URL of Redis. None: there is no Redis, and the limits are enforced in this process only.
            process: The name of this process in its leases.
            share: Returns the share of each limit that this process has while Redis is unavailable.

        Raises:
            InvalidConfigError: *url* is not a URL.
        """

        def now_us() -> int:
            return round(clock.monotonic() * MICRO)

        self._store = NullFleetGate() if url is None else _redis(url, process, clock, settings)
        self.gate = FailoverGate(
            self._store,
            lambda: LocalGate(now_us, birth_us=now_us()),
            share=share,
            clock=clock,
            draw=draw,
            emit=emit,
            storeless=url is None,
        )
        self.renewer = LeaseRenewer(
            self.gate,
            clock=clock,
            draw=draw,
            emit=emit,
            beat_s=settings.beat_s,
            is_degraded=lambda: self.gate.is_degraded,
        )

        local = LocalBreakers(self.gate, reporter=2 + crc32(process.encode()), clock=clock)

        def admitter(process: str) -> Admitter:
            return Admitter(local, self.renewer, process=process, clock=clock, draw=draw, ids=ids, emit=emit)

        self.admitter = admitter(process)
        self.untied = admitter(f"{UNTIED}{process}")

    async def open(self) -> None:
        """Subscribe to grants."""
        await self.renewer.listen()

    def services(self) -> list[Service]:
        """Return the services that must run: the renewal of leases, and the probe of Redis."""
        return [self.renewer.service(), self.gate.service()]

    async def close(self) -> None:
        """Send the last releases and close. Nothing may be admitted any more."""
        await self.renewer.drained()
        await self._store.close()
        await self.gate.drained()


class GateComponents:
    """The gate as a runtime uses it: admission by connection, and the services that it needs.

    Attributes:
        viewer: Reads the state of the gate. None without Redis, as are `operator`, `keys` and `orphans`.
        operator: Changes the state of the gate for the operator.
        keys: Lists, checks and deletes Redis keys.
        orphans: Finds leases of processes that have ended.
    """

    def __init__(
        self,
        url: Secret | None,
        settings: GateSettings,
        *,
        database: Database,
        session_id: Callable[[], UUID | None],
        profile: Callable[[str, str | None], Profile],
        clock: Clock,
        draw: Draw,
        ids: Ids,
        emit: Emit,
    ) -> None:
        self._url = url
        self._clock = clock
        sessions = PostgresSessionStore(database, ids)
        self.viewer = None if url is None else gate_viewer(url, settings.prefix)
        self.operator = None if url is None else _operator(url, settings)
        self.keys = None if url is None else gate_keys(url, settings.prefix)
        self.orphans = None if self.keys is None else OrphanSearch(self.keys, sessions, clock=clock)
        self._emit = emit
        self.fleet = FleetSize(sessions, session_id, clock=clock)
        self._notes = PostgresGateNotes(database)
        self._first_use = FirstUse(self._notes, settings.prefix, clock=clock, lease_s=settings.lease_s)
        self._learned_limits = LearnedLimitsWriter(self._notes, clock=clock)
        self.core = GateCore(
            url,
            process=str(session_id()),
            clock=clock,
            draw=draw,
            ids=ids,
            emit=emit,
            share=lambda: self.fleet.share,
            settings=replace(settings, new=self._first_use.is_new),
        )
        self.override_store = PostgresOverrideStore(database)
        self.overrides = Overrides(self.override_store, self.core.gate.force_degraded, clock=clock, emit=emit)
        self._build_admitters(Plans(profile, round(epoch_s() * 1e6)), settings.prefix, clock, draw, emit)
        # Without Redis the second service, its probe, is not needed.
        self._services = [
            *self.core.services()[: None if url else 1],
            self.fleet.service(draw=draw, emit=emit),
            self.overrides.service(draw=draw),
            self._learned_limits.service(draw=draw, emit=emit),
        ]
        self._running: list[asyncio.Task[None]] = []
        self._opening: asyncio.Task[None] | None = None

    def _build_admitters(self, plans: Plans, prefix: str, clock: Clock, draw: Draw, emit: Emit) -> None:
        core, notes, url = self.core, self._notes, self._url
        self.call_admitter = CallAdmitter(
            notes.connection,
            plans,
            core.admitter,
            self.overrides,
            self._learned_limits,
            ready=self.ready,
            clock=clock,
            draw=draw,
            emit=emit,
        )
        self.bulks = BulkAdmitter(
            self.call_admitter.connection,
            plans,
            self.overrides,
            core.untied,
            core.gate,
            core.renewer,
            granting_s=_never_lost if url is None else RedisDataLoss(url, Keyspace(prefix)).granting_s,
            ready=self.ready,
            emit=emit,
            viewer=self.viewer,
        )

    async def check(self) -> None:
        """Check that Redis keeps its keys; do nothing if it is unavailable.

        Emits GateNotPersistent if the server does not write an append-only file.

        Raises:
            InvalidConfigError: Redis may evict keys. Spec: G9.
        """
        if self._url is None:
            return
        with suppress(DependencyUnavailableError):
            facts = await redis_info(self._url)
            if facts.evicts:
                raise InvalidConfigError(
                    f"Redis drops keys when it is full: maxmemory-policy is {facts.eviction}",
                    hint="set maxmemory-policy noeviction; a limit that is dropped lets calls through",
                )
            if not facts.appends:
                self._emit(GateNotPersistent(f"{facts.product} {facts.version}", APPEND_ADVICE))

    def maintenance(self) -> Mapping[str, Callable[[], Awaitable[int]]]:
        """Return the gate's part of the hourly clean-up, by name. One process of the fleet runs it."""
        return {} if self.keys is None else {"gate": GateMaintenance(self.keys, emit=self._emit).run}

    async def ready(self) -> None:
        """Open the gate and start its services; return once they run.

        Each call awaits this, and the first one starts them, so that a process without calls does not take
        part in the gate.

        Raises:
            DependencyUnavailableError: The first use of the gate could not be recorded in PostgreSQL. The next
                call tries again.
        """
        if self._running:
            return
        if self._opening is None or _failed(self._opening):
            self._opening = asyncio.create_task(self._open(), name="fairlead-gate")
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        """Open the gate, and start its services.

        Raises:
            DependencyUnavailableError: The first use of the installation is not recorded, so nothing may be
                admitted.
        """
        await self._first_use.begin()
        with suppress(DependencyUnavailableError):  # its service counts the processes again later
            await self.fleet.refresh()
        await self.core.open()
        with suppress(DependencyUnavailableError):
            await self.overrides.refresh()
        self._running = [
            asyncio.create_task(service.run(), name=f"fairlead-{service.name}") for service in self._services
        ]

    async def close(self) -> None:
        """Stop the services, release the leases, store the learned limits, and close."""
        if self._opening is not None:
            with suppress(DependencyUnavailableError):
                await self._opening
        for service in self._services:
            service.stop()
        await asyncio.gather(*self._running)
        await self.core.close()
        with suppress(DependencyUnavailableError, TimeoutError):
            async with TimeLimit(self._clock, LEAVE_S):
                await self._learned_limits.write(write_all=True)
        await self._notes.close()


async def _never_lost(domain: Domain) -> float:
    return math.inf


def _failed(opening: asyncio.Task[None]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)


def gate_viewer(url: Secret, prefix: str) -> GateInspector:
    """Return the reader of the gate's state under the keys that begin with *prefix*."""
    return RedisInspector(url, Keyspace(prefix))


def gate_keys(url: Secret, prefix: str) -> GateKeys:
    """Return the access to the Redis keys that begin with *prefix*, for maintenance."""
    return RedisKeys(url, Keyspace(prefix))


def _operator(url: Secret, settings: GateSettings) -> RedisAdmin:
    return RedisAdmin(url, Keyspace(settings.prefix), lease_s=settings.lease_s)


def _redis(url: Secret, process: str, clock: Clock, settings: GateSettings) -> RedisGate:
    return RedisGate(
        url,
        clock=clock,
        process=process,
        keys=Keyspace(settings.prefix),
        new=settings.new,
        lease_s=settings.lease_s,
        events=settings.events,
        spends=settings.spends,
    )
