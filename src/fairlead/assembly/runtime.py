"""The only place that picks implementations: settings in, a working fairlead out (STYLE A2).

``Runtime.open`` connects and checks, ``run`` works until stopped, ``close`` lets go in reverse order.
Everything runs under one task group; what fails surfaces where it was started.

Over 400 lines because one place wires everything, and has not been split into builders yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from fairlead._core.secret import Secret
from fairlead._version import __version__
from fairlead.adapters.embedded import EmbeddedServers
from fairlead.adapters.journal import FileJournal
from fairlead.adapters.local.memory_usage import SystemMemory
from fairlead.adapters.local.process_identity import LocalProcesses
from fairlead.adapters.local.system import SystemClock, SystemIds, draw, epoch_s
from fairlead.adapters.postgres.audit import PostgresAuditStore
from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.data_keys import PostgresKeyStore
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.dead_letters import PostgresDeadLetterStore
from fairlead.adapters.postgres.endpoints import PostgresEndpointGate
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.adapters.postgres.lanes import PostgresLaneStore
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.postgres.schedule_runs import PostgresScheduleStore
from fairlead.adapters.postgres.worker_sessions import PostgresSessionStore
from fairlead.adapters.vault import TenantVault
from fairlead.adapters.vault.assertion_signer import JoseSigner
from fairlead.assembly import settings_mapping
from fairlead.assembly.calls import CallComponents, HttpClients
from fairlead.assembly.config import Config
from fairlead.assembly.event_bus import EventBus
from fairlead.assembly.gate import GateComponents, GateSettings
from fairlead.assembly.offline import caller_jobs
from fairlead.assembly.providers import AppRegistry, ProfileRegistry
from fairlead.assembly.settings import Settings
from fairlead.assembly.stores import check_schema, database_settings, master_keyring, read_texts
from fairlead.engine.base.service import Service, ended
from fairlead.engine.jobs.dead_letter import DeadLetterProcessor
from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.handler import Handler
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.jobs.lane_maintenance import LaneMaintenance
from fairlead.engine.jobs.loop_meter import LoopMeter
from fairlead.engine.jobs.pruner import ENDPOINTS_KEPT_S, Pruner
from fairlead.engine.jobs.rescuer import Rescuer
from fairlead.engine.jobs.scheduler import Scheduler
from fairlead.engine.jobs.schedules import Schedules
from fairlead.engine.jobs.worker import Worker
from fairlead.engine.ports import ClaimFilter, Schedule
from fairlead.engine.tokens.account import Accounts
from fairlead.engine.tokens.connections import Connections
from fairlead.engine.tokens.consent import Consents
from fairlead.engine.tokens.coordinator import Coordinator
from fairlead.engine.tokens.database_failover import TimelineWatch
from fairlead.engine.tokens.deps import RefreshDeps, RefreshSettings
from fairlead.engine.tokens.grants import Grants
from fairlead.engine.tokens.notification_jobs import NotificationJobs
from fairlead.engine.tokens.reader import TokenReader
from fairlead.engine.tokens.refresh_jobs import TokenJobs
from fairlead.engine.tokens.request_sender import RefreshRequestSender
from fairlead.engine.tokens.settle import Settler
from fairlead.engine.tokens.unknown_outcomes import UnknownOutcomes
from fairlead.errors import DependencyUnavailableError, RefusedError

SESSION_WITHIN_S = 30.0
"""Once the database has answered: whoever begins does not wait for ever for a session."""
Subscribers = Mapping[str, Sequence[Callable[[Mapping[str, Any]], object]]]


@dataclass(frozen=True, slots=True)
class Roles:
    """What a process does besides answering: run jobs, take the runs of schedules. Rescue runs always."""

    worker: bool = True
    scheduler: bool = True


class Runtime:
    """Everything wired. Made by ``open``; its attributes are the engine's rooms."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.settings: Settings = config.settings
        self.bus = EventBus()
        self.ids = SystemIds()
        self.clock = SystemClock()
        self._stack = AsyncExitStack()
        self._worker: Worker | None = None
        self._declared: Sequence[Schedule] = ()
        self._stopping = asyncio.Event()
        self._at_work = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        config: Config,
        handlers: Iterable[Handler] = (),
        subscribers: Subscribers | None = None,
        schedules: Sequence[Schedule] = (),
    ) -> Runtime:
        """Connect, check and wire. Raises a SetupError that names the way out; nothing is left open.

        *schedules* are written beside fairlead's own when it begins to ``run``.
        """
        runtime = cls(config)
        runtime._declared = schedules
        try:
            await runtime._connect()
            await runtime._wire(handlers, subscribers or {})
        except BaseException:
            await runtime._stack.aclose()
            raise
        return runtime

    async def close(self) -> None:
        """End ``run``, land the refreshes in flight, end the session, close journal and connections."""
        self.stop()
        try:  # the jobs of a ``run`` in another task need all that is closed here
            await self._at_work.acquire()
        finally:
            await self._stack.aclose()

    async def _connect(self) -> None:
        self.database_url = await self._database_url()
        settings = database_settings(self.settings, self.database_url)
        self.migrator = Migrator(settings)
        await check_schema(self.migrator, apply=self.settings.database.url is None)
        self.database = await Database.open(settings)
        self._stack.push_async_callback(self.database.close)
        await asyncio.to_thread(read_texts)

    async def _database_url(self) -> Secret:
        given, redis = self.settings.database.url, self.settings.redis.url
        self.redis_url = Secret(redis.get_secret_value()) if redis else None
        if given is not None:
            return Secret(given.get_secret_value())
        servers = EmbeddedServers(self.settings.home / "servers")
        endpoints = await asyncio.to_thread(servers.start)
        self._stack.callback(servers.release)
        self.redis_url = self.redis_url or Secret(endpoints.redis_url)
        return Secret(endpoints.database_url)

    async def _wire(self, handlers: Iterable[Handler], subscribers: Subscribers) -> None:
        notify = not self.settings.database.pooler
        bound = self.settings.retention.dead_letter_bound
        self.jobs = PostgresJobStore(self.database, self.ids, bound=bound, notify=notify)
        self._stack.push_async_callback(self.jobs.close)
        self.callers = caller_jobs(self.settings)
        self.lanes = PostgresLaneStore(self.database, notify=notify)
        self.sessions = PostgresSessionStore(self.database, self.ids)
        self.schedule_store = PostgresScheduleStore(self.database, notify=notify)
        self.schedules = Schedules(self.schedule_store, self.jobs, ids=self.ids)
        self.dead_letters = PostgresDeadLetterStore(self.database, notify=notify)
        self.audit = PostgresAuditStore(self.database)
        self.key_store = PostgresKeyStore(self.database)
        self.credentials = PostgresCredentialStore(self.database)
        self.endpoints = PostgresEndpointGate(self.database)
        self._stack.push_async_callback(self.credentials.close)
        self._stack.push_async_callback(self.endpoints.close)
        self.profiles, self.apps = ProfileRegistry(self.settings), AppRegistry(self.settings)
        ring, holders = master_keyring(self.settings), self.sessions.key_holders
        self.vault = TenantVault(self.key_store, ring, clock=self.clock, ids=self.ids, holders=holders)
        await self.vault.check()
        await self._open_session()
        await self._wire_tokens()
        self._wire_gate()
        self._wire_jobs(handlers, subscribers)

    async def _open_session(self) -> None:
        self.processes = LocalProcesses()
        self.heartbeat = Heartbeat(
            self.sessions,
            self.processes.identity(),
            version=__version__,
            clock=self.clock,
            draw=draw,
            ids=self.ids,
            emit=self.bus.emit,
            lease_s=self.settings.worker.lease_s,
            master_keys=self.vault.master_ids,
            app_version=self.settings.app_version,
        )
        self.heartbeat.on_keys_renewed(self.vault.look_again)
        beating = asyncio.create_task(self.heartbeat.run(), name="fairlead-heartbeat")
        self._stack.push_async_callback(ended, beating, self.heartbeat.stop)
        opened = asyncio.create_task(self.heartbeat.opened())
        await asyncio.wait((opened, beating), timeout=SESSION_WITHIN_S, return_when="FIRST_COMPLETED")
        if not opened.done():
            opened.cancel()
            if not beating.done():
                raise DependencyUnavailableError("the database went away while this process began")
            await beating  # it ended before there was a session: let its reason surface

    def _session_id(self) -> UUID:
        session_id = self.heartbeat.session_id
        if session_id is None:
            raise RefusedError("this process has lost its lease", hint="it asks for a new one by itself")
        return session_id

    async def _wire_tokens(self) -> None:
        await self._open_outside()
        self.refresh_deps = self._make_refresh_deps()
        numbers = self.refresh_settings
        settler, grants = (
            Settler(self.refresh_deps, numbers.settle_retry_s),
            Grants(self.refresh_deps, numbers),
        )
        self.unknown = UnknownOutcomes(self.refresh_deps, numbers, settler)
        sender = RefreshRequestSender(self.refresh_deps, numbers, grants, settler, self.unknown)
        self.coordinator = Coordinator(self.refresh_deps, numbers, sender, settler, self.unknown)
        # Before the journal and the connections close, what is in flight lands.
        self._stack.push_async_callback(self.coordinator.drain, self.settings.refresh.total_deadline_s)
        self.reader = TokenReader(self.refresh_deps, self.coordinator, settler, self.settings.refresh.cache_s)
        self.connections = Connections(self.refresh_deps)
        self.consents = Consents(self.refresh_deps, self.connections)
        self._stack.push_async_callback(self.consents.drain)
        self.accounts = Accounts(self.refresh_deps, grants, settler, self.reader, self.connections)
        self.timeline_watch = TimelineWatch(self.refresh_deps, self.unknown)
        await self.timeline_watch.begin()
        watch = self.timeline_watch.service(clock=self.clock, draw=draw)
        self._stack.push_async_callback(ended, asyncio.create_task(watch.run(), name=watch.name), watch.stop)

    async def _open_outside(self) -> None:
        """What answers pass on their way in: the wire and the journal."""
        self.wires = HttpClients(
            self.settings, self.heartbeat, clock=self.clock, draw=draw, emit=self.bus.emit
        )
        self._stack.push_async_callback(self.wires.close)
        self.journal = FileJournal(self.settings.home / "journal", self._session_id())
        await self.journal.open()
        self._stack.push_async_callback(self.journal.close)

    def _make_refresh_deps(self) -> RefreshDeps:
        return RefreshDeps(
            store=self.credentials,
            vault=self.vault,
            journal=self.journal,
            transport=self.wires.tokens,
            gate=self.endpoints,
            apps=self.apps,
            profiles=self.profiles,
            signer=JoseSigner(),
            clock=self.clock,
            draw=draw,
            ids=self.ids,
            emit=self.bus.emit,
            session_id=self._session_id,
            reauth_link=partial(settings_mapping.reauth_link, self.settings),
        )

    @property
    def refresh_settings(self) -> RefreshSettings:
        """The coordinator's numbers."""
        return settings_mapping.refresh_settings(self.settings)

    def _wire_gate(self) -> None:
        self.gate = GateComponents(
            self.redis_url,
            GateSettings(prefix=self.settings.redis.prefix),
            database=self.database,
            session_id=lambda: self.heartbeat.session_id,
            profile=self.profiles.profile,
            clock=self.clock,
            draw=draw,
            ids=self.ids,
            emit=self.bus.emit,
        )
        self._stack.push_async_callback(self.gate.close)
        self.calls = CallComponents(
            self.reader,
            self.gate,
            self.profiles.profile,
            transport=self.wires.calls,
            clock=self.clock,
            epoch_s=epoch_s,
            draw=draw,
            emit=self.bus.emit,
        )

    def _wire_jobs(self, handlers: Iterable[Handler], subscribers: Subscribers) -> None:
        self.token_jobs = TokenJobs(
            self.refresh_deps, self.refresh_settings, self.coordinator, self.unknown, self.jobs
        )
        rules = settings_mapping.dead_letter_rules(self.settings)
        self.queues = settings_mapping.worker_queues(self.settings, handlers := [*handlers])
        self.dead_letter_processor = DeadLetterProcessor(
            self.dead_letters,
            self.jobs,
            ids=self.ids,
            draw=draw,
            emit=self.bus.emit,
            rules=rules,
            queues=self.queues,
        )
        self.pruner = Pruner(
            self.jobs,
            self.dead_letters,
            self.schedule_store,
            self.sessions,
            retention=settings_mapping.retention(self.settings),
            others={**self.gate.others(), "endpoints": partial(self.endpoints.prune, ENDPOINTS_KEPT_S)},
        )
        self.executor = Executor(
            [
                *self.token_jobs.handlers(),
                *self._notices(subscribers).handlers(),
                self.dead_letter_processor.handler(),
                self.pruner.handler(),
                *handlers,
            ],
            clock=self.clock,
            draw=draw,
            ids=self.ids,
            emit=self.bus.emit,
            factor_of=self.profiles.backoff_factor,
            dead_letters=rules,
            pauses=self.lanes,
            grants=self.credentials,
        )

    def _notices(self, subscribers: Subscribers) -> NotificationJobs:
        return NotificationJobs(
            subscribers,
            self.wires.notices,
            credentials=self.credentials,
            jobs=self.jobs,
            ids=self.ids,
            reauth_link=partial(settings_mapping.reauth_link, self.settings),
        )

    # ---- work ----------------------------------------------------------------------------------

    async def run(self, roles: Roles) -> None:
        """Work until ``stop``; then drain within the grace."""
        async with self._at_work:
            await self._run(roles)

    async def _run(self, roles: Roles) -> None:
        self.database.report_row_security(self.bus.emit)
        await self.gate.check()
        await self.schedules.declare(
            [*settings_mapping.schedules(self.settings), *self._declared], self.bus.emit
        )
        self._worker = worker = self._make_worker() if roles.worker else None
        services = self._make_services(roles, worker.claims if worker else None)
        if self._stopping.is_set():
            return
        unlisten = await self.jobs.listen(lambda _queue: worker.wake()) if worker else None
        try:
            async with asyncio.TaskGroup() as group:
                for service in services:
                    group.create_task(service.run(), name=f"fairlead-{service.name}")
                if worker is not None:
                    await worker.run()
                else:
                    await self._stopping.wait()
                for service in services:
                    service.stop()
        finally:
            if unlisten is not None:
                await unlisten()

    def _make_services(self, roles: Roles, wanted: ClaimFilter | None) -> list[Service]:
        emit, crashes = self.bus.emit, self.settings.worker.max_crashes
        rescuer = Rescuer(
            self.sessions, self.jobs, self.processes, self.heartbeat, emit=emit, max_crashes=crashes
        )
        services = [
            rescuer.service(clock=self.clock, draw=draw),
            *LaneMaintenance(self.lanes, wanted, emit=emit).services(clock=self.clock, draw=draw),
            LoopMeter(clock=self.clock, emit=emit).service(draw=draw),
        ]
        if roles.scheduler:
            scheduler = Scheduler(self.schedule_store, self.heartbeat, ids=self.ids, emit=emit)
            services.append(scheduler.service(clock=self.clock, draw=draw))
        return services

    def _make_worker(self) -> Worker:
        return Worker(
            self.jobs,
            self.executor,
            self.heartbeat,
            clock=self.clock,
            draw=draw,
            emit=self.bus.emit,
            settings=settings_mapping.worker_settings(self.settings, self.queues),
            memory=SystemMemory(settings_mapping.memory_limit_bytes(self.settings)),
            watch=self.wires.watch,
        )

    def stop(self) -> None:
        """End ``run``. A second call: at once."""
        self._stopping.set()
        if self._worker is not None:
            self._worker.stop()
