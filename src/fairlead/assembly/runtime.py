"""The runtime: a fairlead that is connected, checked, and wired from its settings.

Each arrow leads from an object to those that are built with it.

database_stores ─► tokens ─┬─► gate ─► calls
                           └─► jobs
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from fairlead._core.secret import Secret
from fairlead._version import __version__
from fairlead.adapters.embedded import EmbeddedServers
from fairlead.adapters.journal import FileJournal
from fairlead.adapters.local.process_identity import LocalProcesses
from fairlead.adapters.local.system import SystemClock, SystemIds, draw, epoch_s
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.migrate import Migrator
from fairlead.adapters.vault import TenantVault
from fairlead.adapters.vault.assertion_signer import JoseSigner
from fairlead.assembly import settings_mapping
from fairlead.assembly.calls import CallComponents, HttpClients
from fairlead.assembly.config import Config
from fairlead.assembly.database_stores import DatabaseStores
from fairlead.assembly.event_bus import EventBus
from fairlead.assembly.gate import GateComponents, GateSettings
from fairlead.assembly.jobs import JobComponents, Subscribers, background_services
from fairlead.assembly.offline import caller_jobs
from fairlead.assembly.providers import AppRegistry, ProfileRegistry
from fairlead.assembly.settings import Settings
from fairlead.assembly.stores import check_schema, database_settings, master_keyring, read_texts
from fairlead.assembly.tokens import TokenComponents
from fairlead.engine.base.service import Service, ended
from fairlead.engine.jobs.handler import Handler
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.jobs.schedules import Schedules
from fairlead.engine.jobs.worker import Worker
from fairlead.engine.ports import Schedule
from fairlead.engine.tokens.deps import RefreshDeps, RefreshSettings
from fairlead.errors import DependencyUnavailableError, RefusedError

SESSION_WITHIN_S = 30.0
"""How long opening waits for the first session once the database has answered."""


@dataclass(frozen=True, slots=True)
class Roles:
    """What a process does besides tokens and calls. Every process also rescues jobs of lost processes.

    Attributes:
        worker: Whether it runs jobs.
        scheduler: Whether it fires schedules.
    """

    worker: bool = True
    scheduler: bool = True


class Runtime:
    """The connected and wired objects of one process, returned by ``open``."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.settings: Settings = config.settings
        self.bus = EventBus()
        self.ids = SystemIds()
        self.clock = SystemClock()
        self.reauth_link = partial(settings_mapping.reauth_link, config.settings)
        self._stack = AsyncExitStack()
        self._worker: Worker | None = None
        self._declared: Sequence[Schedule] = ()
        self._stopping = asyncio.Event()
        self._running_lock = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        config: Config,
        handlers: Iterable[Handler] = (),
        subscribers: Subscribers | None = None,
        schedules: Sequence[Schedule] = (),
    ) -> Runtime:
        """Connect to the stores, check them, and build all objects. After an error nothing is left open.

        Args:
            handlers: The job handlers of the user, besides fairlead's own.
            subscribers: The functions declared with ``@fl.on``.
            schedules: The schedules of the user. They are stored with fairlead's own when `run` begins.

        Raises:
            SetupError: Something is not set up; the hint says what to do.
        """
        runtime = cls(config)
        runtime._declared = schedules
        try:
            await runtime._connect()
            await runtime._build(handlers, subscribers or {})
        except BaseException:
            await runtime._stack.aclose()
            raise
        return runtime

    async def close(self) -> None:
        """End `run`, wait for refreshes in flight, end the session, close journal and connections."""
        self.stop()
        try:  # the jobs of a `run` in another task need everything that is closed here
            await self._running_lock.acquire()
        finally:
            await self._stack.aclose()

    # ---- wiring --------------------------------------------------------------------------------

    async def _connect(self) -> None:
        self.database_url = await self._database_url()
        settings = database_settings(self.settings, self.database_url)
        self.migrator = Migrator(settings)
        await check_schema(self.migrator, apply=self.settings.database.url is None)
        self.database = await Database.open(settings)
        self._stack.push_async_callback(self.database.close)
        await asyncio.to_thread(read_texts)

    async def _database_url(self) -> Secret:
        database, redis = self.settings.database.url, self.settings.redis.url
        self.redis_url = Secret(redis.get_secret_value()) if redis else None
        if database is not None:
            return Secret(database.get_secret_value())
        servers = EmbeddedServers(self.settings.home / "servers")
        endpoints = await asyncio.to_thread(servers.start)
        self._stack.callback(servers.release)
        self.redis_url = self.redis_url or Secret(endpoints.redis_url)
        return Secret(endpoints.database_url)

    async def _build(self, handlers: Iterable[Handler], subscribers: Subscribers) -> None:
        self._build_stores()
        self.profiles, self.apps = ProfileRegistry(self.settings), AppRegistry(self.settings)
        ring, holders = master_keyring(self.settings), self.sessions.key_holders
        self.vault = TenantVault(self.key_store, ring, clock=self.clock, ids=self.ids, holders=holders)
        await self.vault.check()
        await self._open_session()
        await self._open_http_and_journal()
        self.tokens = TokenComponents(
            self._refresh_deps(), self._refresh_settings(), cache_s=self.settings.refresh.cache_s
        )
        self.reader = self.tokens.reader
        await self.tokens.start(self._stack)
        self._build_gate_and_calls()
        self._build_jobs(handlers, subscribers)

    def _build_stores(self) -> None:
        self.stores = stores = DatabaseStores(self.database, self.ids, self.settings)
        self._stack.push_async_callback(stores.close)
        # The command line reads these by name.
        self.jobs, self.lanes, self.dead_letters = stores.jobs, stores.lanes, stores.dead_letters
        self.sessions, self.schedule_store, self.audit = stores.sessions, stores.schedule_store, stores.audit
        self.key_store, self.credentials, self.endpoints = (
            stores.key_store,
            stores.credentials,
            stores.endpoints,
        )
        self.schedules = Schedules(self.schedule_store, self.jobs, ids=self.ids)
        self.callers = caller_jobs(self.settings)

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
        self.heartbeat.on_keys_renewed(self.vault.refresh_keys)
        beating = asyncio.create_task(self.heartbeat.run(), name="fairlead-heartbeat")
        self._stack.push_async_callback(ended, beating, self.heartbeat.stop)
        opened = asyncio.create_task(self.heartbeat.wait_until_open())
        await asyncio.wait((opened, beating), timeout=SESSION_WITHIN_S, return_when="FIRST_COMPLETED")
        if not opened.done():
            opened.cancel()
            if not beating.done():
                raise DependencyUnavailableError("the database became unavailable while this process started")
            await beating  # it ended before there was a session: raise its error

    def _session_id(self) -> UUID:
        session_id = self.heartbeat.session_id
        if session_id is None:
            raise RefusedError(
                "this process has lost its lease", hint="it opens a new session by itself: try again"
            )
        return session_id

    async def _open_http_and_journal(self) -> None:
        self.http = HttpClients(
            self.settings, self.heartbeat, clock=self.clock, draw=draw, emit=self.bus.emit
        )
        self._stack.push_async_callback(self.http.close)
        self.journal = FileJournal(self.settings.home / "journal", self._session_id())
        await self.journal.open()
        self._stack.push_async_callback(self.journal.close)

    def _refresh_deps(self) -> RefreshDeps:
        return RefreshDeps(
            store=self.credentials,
            vault=self.vault,
            journal=self.journal,
            transport=self.http.tokens,
            gate=self.endpoints,
            apps=self.apps,
            profiles=self.profiles,
            signer=JoseSigner(),
            clock=self.clock,
            draw=draw,
            ids=self.ids,
            emit=self.bus.emit,
            session_id=self._session_id,
            reauth_link=self.reauth_link,
        )

    def _refresh_settings(self) -> RefreshSettings:
        return settings_mapping.refresh_settings(self.settings)

    def _build_gate_and_calls(self) -> None:
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
            transport=self.http.calls,
            clock=self.clock,
            epoch_s=epoch_s,
            draw=draw,
            emit=self.bus.emit,
        )

    def _build_jobs(self, handlers: Iterable[Handler], subscribers: Subscribers) -> None:
        self.job_components = JobComponents(
            self.stores,
            self.tokens,
            self.gate,
            self.http,
            settings=self.settings,
            profiles=self.profiles,
            handlers=handlers,
            subscribers=subscribers,
        )

    # ---- work ----------------------------------------------------------------------------------

    async def run(self, roles: Roles) -> None:
        """Run jobs and services until `stop`, then drain for at most ``worker.shutdown_grace_s``."""
        async with self._running_lock:
            await self._run(roles)

    async def _run(self, roles: Roles) -> None:
        self.database.report_row_security(self.bus.emit)
        await self.gate.check()
        await self.schedules.declare(
            [*settings_mapping.schedules(self.settings), *self._declared], self.bus.emit
        )
        self._worker = worker = self.job_components.worker(self.heartbeat) if roles.worker else None
        services = self._services(roles, worker)
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

    def _services(self, roles: Roles, worker: Worker | None) -> list[Service]:
        return background_services(
            self.stores,
            self.processes,
            self.heartbeat,
            claims=worker.claims if worker else None,
            scheduler=roles.scheduler,
            max_crashes=self.settings.worker.max_crashes,
            clock=self.clock,
            draw=draw,
            ids=self.ids,
            emit=self.bus.emit,
        )

    def stop(self) -> None:
        """End `run` after its jobs have drained. A second call does not wait for them."""
        self._stopping.set()
        if self._worker is not None:
            self._worker.stop()
