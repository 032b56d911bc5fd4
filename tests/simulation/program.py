"""One life of a process: the real engine, put together as assembly/runtime.py does it, over simulated roads.

What the runtime takes from the machine comes from the world: stores behind a road, a vault that hides
nothing, a journal on a simulated disk, transports to simulated servers. Two services look less often than in
production, for they would take most of the steps; no other number is one that a user could not set.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from fairlead.assembly.calls import CallComponents
from fairlead.assembly.gate import GateComponents
from fairlead.engine.base.service import Service
from fairlead.engine.jobs.dead_letter import DeadLetterProcessor
from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.handler import Handler
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.jobs.lane_maintenance import LaneMaintenance
from fairlead.engine.jobs.rescuer import Rescuer
from fairlead.engine.jobs.scheduler import Scheduler
from fairlead.engine.jobs.schedules import Schedules
from fairlead.engine.jobs.worker import Worker
from fairlead.engine.jobs.worker_settings import WorkerSettings
from fairlead.engine.limits.admitter import Admitter
from fairlead.engine.limits.call_admitter import CallAdmitter
from fairlead.engine.limits.failover_gate import FailoverGate
from fairlead.engine.limits.first_use import FirstUse
from fairlead.engine.limits.fleet_size import FleetSize
from fairlead.engine.limits.learned_limits import LearnedLimitsWriter
from fairlead.engine.limits.lease_renewer import LeaseRenewer
from fairlead.engine.limits.limit_plans import Plans
from fairlead.engine.limits.override_cache import Overrides
from fairlead.engine.ports import Schedule
from fairlead.engine.tokens.connections import Connections
from fairlead.engine.tokens.coordinator import Coordinator
from fairlead.engine.tokens.database_failover import TimelineWatch
from fairlead.engine.tokens.deps import RefreshDeps, RefreshSettings, Signer
from fairlead.engine.tokens.grants import Grants
from fairlead.engine.tokens.notification_jobs import NotificationJobs
from fairlead.engine.tokens.reader import TokenReader
from fairlead.engine.tokens.refresh_jobs import TokenJobs
from fairlead.engine.tokens.request_sender import RefreshRequestSender
from fairlead.engine.tokens.settle import Settler
from fairlead.engine.tokens.unknown_outcomes import UnknownOutcomes
from fairlead.errors import RefusedError
from fairlead.events import Event
from fairlead.policy.limits.limit import MICRO
from fairlead.testing._kit.ids import CountedIds
from fairlead.testing._memory import MemoryDeadLetterStore, MemoryLaneStore, MemoryScheduleStore
from tests.simulation.admission import OwnGate
from tests.simulation.machine import WRONG, NoSwitches, OneApp, SimClock, SimNotes, SimProbe, SimProfiles
from tests.simulation.process import SimProcess
from tests.simulation.roads import JobsRoad, Road
from tests.simulation.sealing import SimJournal, SimVault
from tests.simulation.stores import Parts
from tests.simulation.workload import Desk
from tests.support.memory_endpoints import MemoryEndpointGate
from tests.support.process import FOREVER

if TYPE_CHECKING:
    from tests.simulation.world import World

LEASE_S = 15.0
CONCURRENCY = 8
POLL_S = 2.0
GRACE_S = 20.0
REFRESH = RefreshSettings(retry_dead_after_s=60.0)
GATE_CHECK_S = 2.0
"""Between two looks at Redis; in production 0.2 s."""
LANES_CHECK_S = 5.0
"""Between two looks after the lanes; in production 1 s."""
IDS_APART = 10**6
"""Ids of one life are counted from a number of its own."""
EACH_MINUTE = "* * * * *"
SCHEDULES = (
    Schedule("token.scan", EACH_MINUTE, "token.scan", "fairlead", priority=1),
    Schedule("dead_letter.process", EACH_MINUTE, "dead_letter.process", "fairlead"),
)


class Program:
    """See the module. Rooms are attributes, named as the runtime names them."""

    def __init__(self, world: World, process: SimProcess, parts: Parts, life: int) -> None:
        self.world = world
        self.process = process
        self.name = process.name
        self.told: list[Event] = []
        """The latest events that it emitted."""
        random = world.chance.product(process.label)
        self.draw = random.random
        pace = 1 + (2 * random.random() - 1) * WRONG
        self.clock = SimClock(world.loop, 1000.0 * (life + 1), pace, world.chance.clock(process.host))
        self.ids = CountedIds(start=life * IDS_APART)
        self._stopping = asyncio.Event()
        self.begun = False
        """Whether it is at work: from here on no outage may end it."""
        self._make_stores(parts)
        self._make_session()
        self._make_tokens()
        self._make_gate(parts)
        self._make_jobs()
        parts.alter(self)

    def emit(self, event: Event) -> None:
        """What the engine tells."""
        if not self.process.dead:
            self.told.append(event)
            self.world.note_event(self, event)

    # ---- wired ---------------------------------------------------------------------------------

    def _make_stores(self, parts: Parts) -> None:
        world = self.world
        link, watch = world.carriers.link(), world.watch
        self.jobs: Any = JobsRoad(world.carriers, self.process, parts.jobs(link, watch))
        self.sessions = self._road(parts.sessions(link, watch))
        self.credentials = self._road(parts.credentials(link))
        self.lanes = self._road(MemoryLaneStore(link))
        self.schedule_runs = self._road(MemoryScheduleStore(link))
        self.dead_letters = self._road(MemoryDeadLetterStore(link))
        self.endpoints = self._road(MemoryEndpointGate(link))
        self.notes = self._road(SimNotes(link, world.gate_started))

    def _road(self, store: object) -> Any:
        return Road(self.world.carriers, self.process, store)

    def _make_session(self) -> None:
        self.probe = SimProbe(self.process, lambda: self.world.lives)
        self.heartbeat = Heartbeat(
            self.sessions,
            self.probe.identity(),
            version="simulated",
            clock=self.clock,
            draw=self.draw,
            ids=self.ids,
            emit=self.emit,
            lease_s=LEASE_S,
        )

    def _session_id(self) -> UUID:
        session_id = self.heartbeat.session_id
        if session_id is None:
            raise RefusedError("this process has lost its lease", hint="it asks for a new one by itself")
        return session_id

    def _make_tokens(self) -> None:
        world, process = self.world, self.process
        disk = world.disks[process.host]
        self.deps = RefreshDeps(
            store=self.credentials,
            vault=SimVault(),
            journal=SimJournal(disk, process, world.loop, world.carriers.between),
            transport=world.issuer.transport(process, world.latency_s),
            gate=self.endpoints,
            apps=OneApp(),
            profiles=SimProfiles(),
            signer=cast(Signer, None),
            clock=self.clock,
            draw=self.draw,
            ids=self.ids,
            emit=self.emit,
            session_id=self._session_id,
            reauth_link=lambda key, connection_id: None,
        )
        settler = Settler(self.deps, REFRESH.settle_retry_s)
        grants = Grants(self.deps, REFRESH)
        self.unknown = UnknownOutcomes(self.deps, REFRESH, settler)
        sender = RefreshRequestSender(self.deps, REFRESH, grants, settler, self.unknown)
        self.coordinator = Coordinator(self.deps, REFRESH, sender, settler, self.unknown)
        self.timeline_watch = TimelineWatch(self.deps, self.unknown)
        self.reader = TokenReader(self.deps, self.coordinator, settler, 5.0)
        self.connections = Connections(self.deps)

    def _make_gate(self, parts: Parts) -> None:
        clock, draw, emit = self.clock, self.draw, self.emit

        def degraded_gate() -> OwnGate:
            def now_us() -> int:
                return round(clock.monotonic() * MICRO)

            return OwnGate(now_us, birth_us=now_us())

        self.fleet = FleetSize(self.sessions, lambda: self.heartbeat.session_id, clock=clock)
        self.redis = self.world.redis.gate(self.process, self.world.latency_s)
        self.gate = FailoverGate(
            self.redis, degraded_gate, share=lambda: self.fleet.share, clock=clock, draw=draw, emit=emit
        )
        self.renewer = LeaseRenewer(self.gate, clock=clock, draw=draw, emit=emit)
        self.overrides = Overrides(cast(Any, NoSwitches()), self.gate.force_degraded, clock=clock, emit=emit)
        self.learned_limits = LearnedLimitsWriter(self.notes, clock=clock)
        self.first_use = FirstUse(self.notes, "fairlead", clock=clock, lease_s=30.0)
        admitter = Admitter(
            self.gate,
            self.renewer,
            process=self.process.label,
            clock=clock,
            draw=draw,
            ids=self.ids,
            emit=emit,
        )
        self.call_admitter = CallAdmitter(
            self.notes.connection,
            Plans(SimProfiles().profile),
            admitter,
            self.overrides,
            self.learned_limits,
            ready=self._ready,
            clock=clock,
            draw=draw,
            emit=emit,
        )
        self.bulks = None  # nobody here makes bulk operations
        self.calls = CallComponents(
            self.reader,
            cast(GateComponents, self),
            SimProfiles().profile,
            transport=self.world.upstream.transport(self.process, self.world.latency_s),
            clock=clock,
            epoch_s=clock.epoch_s,
            draw=draw,
            emit=emit,
        )
        self.pipeline = self.calls.pipeline

    async def _ready(self) -> None:
        """The gate is opened as the process begins."""

    def _make_jobs(self) -> None:
        self.token_jobs = TokenJobs(self.deps, REFRESH, self.coordinator, self.unknown, self.jobs)
        processor = DeadLetterProcessor(
            self.dead_letters, self.jobs, ids=self.ids, draw=self.draw, emit=self.emit
        )
        notices = NotificationJobs(
            {},
            None,
            credentials=self.credentials,
            jobs=self.jobs,
            ids=self.ids,
            reauth_link=self.deps.reauth_link,
        )
        self.desk = Desk(self)
        handlers: list[Handler] = [
            *self.token_jobs.handlers(),
            *notices.handlers(),
            processor.handler(),
            *self.desk.handlers(),
        ]
        self.executor = Executor(
            handlers,
            clock=self.clock,
            draw=self.draw,
            ids=self.ids,
            emit=self.emit,
            pauses=self.lanes,
            grants=self.credentials,
        )
        handled = (("default", kind) for kind in self.executor.kinds)
        self.world.database.handled_at.update(dict.fromkeys(handled, FOREVER))  # a report draws no chance
        self.worker = Worker(
            self.jobs,
            self.executor,
            self.heartbeat,
            clock=self.clock,
            draw=self.draw,
            emit=self.emit,
            settings=WorkerSettings(concurrency=CONCURRENCY, poll_s=POLL_S, grace_s=GRACE_S),
        )

    # ---- at work -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until stopped. DependencyUnavailableError where it cannot even begin."""
        async with AsyncExitStack() as stack:
            await self._open_session(stack)
            stack.push_async_callback(self.coordinator.drain, REFRESH.total_deadline_s)
            await self.timeline_watch.begin()
            await self._open_gate(stack)
            await Schedules(self.schedule_runs, self.jobs, ids=self.ids).declare(SCHEDULES)
            await self._work()

    async def _open_session(self, stack: AsyncExitStack) -> None:
        beating = asyncio.create_task(self.heartbeat.run(), name="fairlead-heartbeat")
        stack.push_async_callback(_ended, beating, self.heartbeat)
        await self.heartbeat.wait_until_open()

    async def _open_gate(self, stack: AsyncExitStack) -> None:
        await self.first_use.begin()
        await self.fleet.refresh()
        await self.renewer.listen()
        services = self._gate_services()
        running = [asyncio.create_task(service.run(), name=service.name) for service in services]

        async def close() -> None:
            for service in services:
                service.stop()
            await asyncio.gather(*running)
            await self.renewer.drained()
            await self.gate.drained()

        stack.push_async_callback(close)

    def _gate_services(self) -> list[Service]:
        arguments = {"clock": self.clock, "draw": self.draw, "emit": self.emit}

        async def guard() -> float:
            await self.gate.ping_redis()
            return GATE_CHECK_S

        return [
            Service("gate-failover", guard, interval_s=GATE_CHECK_S, **arguments),  # type: ignore[arg-type]
            self.renewer.service(),
            self.fleet.service(draw=self.draw, emit=self.emit),
        ]

    def _services(self) -> list[Service]:
        clock, draw, emit = self.clock, self.draw, self.emit
        rescuer = Rescuer(self.sessions, self.jobs, self.probe, self.heartbeat, emit=emit)
        renewer = LaneMaintenance(self.lanes, emit=emit)
        _, sweep = renewer.services(clock=clock, draw=draw)
        return [
            rescuer.service(clock=clock, draw=draw),
            Service("lanes", renewer.maintain, interval_s=LANES_CHECK_S, clock=clock, draw=draw, emit=emit),
            sweep,
            self.timeline_watch.service(clock=clock, draw=draw),
            Scheduler(self.schedule_runs, self.heartbeat, ids=self.ids, emit=emit).service(
                clock=clock, draw=draw
            ),
        ]

    async def _work(self) -> None:
        services = self._services()
        if self._stopping.is_set():
            return
        unlisten = await self.jobs.listen(lambda _queue: self.worker.wake())
        self.begun = True
        try:
            async with asyncio.TaskGroup() as group:
                for service in services:
                    group.create_task(service.run(), name=service.name)
                calling = group.create_task(self.desk.now_and_then(), name="calls")
                await self.worker.run()
                calling.cancel()
                for service in services:
                    service.stop()
        finally:
            await unlisten()

    def stop(self) -> None:
        """End `run`, with all that a process does at its end."""
        self._stopping.set()
        self.worker.stop()


async def _ended(task: asyncio.Task[None], heartbeat: Heartbeat) -> None:
    heartbeat.stop()
    await task
