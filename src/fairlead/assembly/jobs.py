"""Wires the job side of a process: handlers, executor, worker, and the services beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from fairlead._core.clock import Clock, Draw
from fairlead._core.ids import Ids
from fairlead.adapters.local.memory_usage import SystemMemory
from fairlead.assembly import settings_mapping
from fairlead.assembly.calls import HttpClients
from fairlead.assembly.database_stores import DatabaseStores
from fairlead.assembly.gate import GateComponents
from fairlead.assembly.providers import ProfileRegistry
from fairlead.assembly.settings import Settings
from fairlead.assembly.tokens import TokenComponents
from fairlead.engine.base.service import Service
from fairlead.engine.jobs.dead_letter import DeadLetterProcessor
from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.handler import Handler
from fairlead.engine.jobs.heartbeat import Heartbeat
from fairlead.engine.jobs.lane_maintenance import LaneMaintenance
from fairlead.engine.jobs.loop_meter import LoopMeter
from fairlead.engine.jobs.pruner import ENDPOINTS_KEPT_S, Pruner
from fairlead.engine.jobs.rescuer import Rescuer
from fairlead.engine.jobs.scheduler import Scheduler
from fairlead.engine.jobs.worker import Worker
from fairlead.engine.ports import ClaimFilter, ProcessProbe
from fairlead.engine.tokens.notification_jobs import NotificationJobs
from fairlead.events import Emit

Subscribers = Mapping[str, Sequence[Callable[[Mapping[str, Any]], object]]]
"""The functions declared with ``@fl.on``, by the name of the event."""


class JobComponents:
    """The handlers of one process and the executor of their jobs."""

    def __init__(
        self,
        stores: DatabaseStores,
        tokens: TokenComponents,
        gate: GateComponents,
        http: HttpClients,
        *,
        settings: Settings,
        profiles: ProfileRegistry,
        handlers: Iterable[Handler],
        subscribers: Subscribers,
    ) -> None:
        deps = tokens.deps
        handlers = [*handlers]
        rules = settings_mapping.dead_letter_rules(settings)
        self._stores, self._http, self._settings, self._deps = stores, http, settings, deps
        self._queues = settings_mapping.worker_queues(settings, handlers)
        self._dead_letter_processor = DeadLetterProcessor(
            stores.dead_letters,
            stores.jobs,
            ids=deps.ids,
            draw=deps.draw,
            emit=deps.emit,
            rules=rules,
            queues=self._queues,
        )
        self.pruner = Pruner(
            stores.jobs,
            stores.dead_letters,
            stores.schedule_store,
            stores.sessions,
            retention=settings_mapping.retention(settings),
            one_batch_prunes={
                **gate.maintenance(),
                "endpoints": partial(stores.endpoints.prune, ENDPOINTS_KEPT_S),
            },
        )
        self.executor = Executor(
            [
                *tokens.jobs(stores.jobs).handlers(),
                *self._notification_jobs(subscribers).handlers(),
                self._dead_letter_processor.handler(),
                self.pruner.handler(),
                *handlers,
            ],
            clock=deps.clock,
            draw=deps.draw,
            ids=deps.ids,
            emit=deps.emit,
            delay_factor=profiles.backoff_factor,
            dead_letters=rules,
            pauses=stores.lanes,
            grants=stores.credentials,
        )

    def worker(self, heartbeat: Heartbeat) -> Worker:
        """Return the worker of this process."""
        deps, settings = self._deps, self._settings
        return Worker(
            self._stores.jobs,
            self.executor,
            heartbeat,
            clock=deps.clock,
            draw=deps.draw,
            emit=deps.emit,
            settings=settings_mapping.worker_settings(settings, self._queues),
            memory=SystemMemory(settings_mapping.memory_limit_bytes(settings)),
            watch=self._http.watch,
        )

    def _notification_jobs(self, subscribers: Subscribers) -> NotificationJobs:
        return NotificationJobs(
            subscribers,
            self._http.webhook,
            credentials=self._stores.credentials,
            jobs=self._stores.jobs,
            ids=self._deps.ids,
            reauth_link=self._deps.reauth_link,
        )


def background_services(
    stores: DatabaseStores,
    probe: ProcessProbe,
    heartbeat: Heartbeat,
    *,
    claims: ClaimFilter | None,
    scheduler: bool,
    max_crashes: int,
    clock: Clock,
    draw: Draw,
    ids: Ids,
    emit: Emit,
) -> list[Service]:
    """Return the services that run beside a worker: rescue, lanes, the loop meter, and the scheduler.

    Args:
        claims: What the worker of this process claims; None: it has no worker.
        scheduler: Whether this process fires schedules.
        max_crashes: How often a job may crash its process.
    """
    rescuer = Rescuer(stores.sessions, stores.jobs, probe, heartbeat, emit=emit, max_crashes=max_crashes)
    services = [
        rescuer.service(clock=clock, draw=draw),
        *LaneMaintenance(stores.lanes, claims, emit=emit).services(clock=clock, draw=draw),
        LoopMeter(clock=clock, emit=emit).service(draw=draw),
    ]
    if scheduler:
        fires = Scheduler(stores.schedule_store, heartbeat, ids=ids, emit=emit)
        services.append(fires.service(clock=clock, draw=draw))
    return services
