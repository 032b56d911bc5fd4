"""Processes of a fleet that run bulk operations, on any gate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from fairlead.adapters.local.local_gate import LocalGate
from fairlead.adapters.local.system import SystemIds
from fairlead.adapters.redis.data_loss import RedisDataLoss
from fairlead.engine.jobs.handler import JobContext, current_job
from fairlead.engine.limits.admitter import Admitter
from fairlead.engine.limits.bulk_slots import BulkAdmitter, BulkRequest
from fairlead.engine.limits.failover_gate import FailoverGate
from fairlead.engine.limits.lease_renewer import LeaseRenewer
from fairlead.engine.limits.limit_plans import Plans
from fairlead.engine.limits.override_cache import Overrides
from fairlead.engine.ports import Connection, ConnectionKey, GateView, HolderView, Override
from fairlead.errors import BulkLimitReachedError
from fairlead.policy.limits.bulk_token import parse_token
from fairlead.policy.limits.limit import Domain, Plan
from fairlead.policy.limits.override import OverrideKind, OverrideScope
from fairlead.policy.limits.share import Share
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.testing._kit.clock import ManualClock
from tests.contract.gates import Timed
from tests.support.engine import Recorder, half

PROFILES = load_profiles([])
PLANS = Plans(lambda provider, variant: PROFILES[provider])
SHOP, OTHER = ConnectionKey("acme", "shopify"), ConnectionKey("beta", "shopify")
LEASE_S = 600
RUNNING = "gid://shopify/BulkOperation/7"


@dataclass
class Process:
    """One process's way to bulk operations. *settings* are those of its connections."""

    timed: Timed
    clock: ManualClock
    name: str
    settings: dict[str, object]
    losses: RedisDataLoss | None = None

    async def granting_s(self, domain: Domain) -> float:
        if self.losses is None:
            return math.inf
        self.losses.pinned_us = self.timed.now_us
        return await self.losses.granting_s(domain)

    def __post_init__(self) -> None:
        self.told = Recorder()
        parts = {"clock": self.clock, "draw": half, "emit": self.told}
        self.gate = FailoverGate(
            self.timed.gate,  # type: ignore[arg-type]
            lambda: LocalGate(lambda: 0),
            share=lambda: Share(1, 0),
            **parts,  # type: ignore[arg-type]
        )
        self.renewer = LeaseRenewer(self.gate, **parts)  # type: ignore[arg-type]
        admitter = Admitter(
            self.gate,
            self.renewer,
            process=self.name,
            ids=SystemIds(),
            **parts,  # type: ignore[arg-type]
        )
        self.overrides = Overrides(self, self.gate.force_degraded, clock=self.clock, emit=self.told)  # type: ignore[arg-type]
        self.override_store: list[Override] = []
        self.bulks = BulkAdmitter(
            self.connection,
            PLANS,
            self.overrides,
            admitter,
            self.gate,
            self.renewer,
            granting_s=self.granting_s,
            ready=_ready,
            emit=self.told,
            viewer=self,
        )
        self.holders: tuple[HolderView, ...] = ()

    def sees(self, token: str) -> None:
        """The gate shows it who has the place of *token*."""
        bulk_token = parse_token(token)
        assert bulk_token is not None
        self.holders = (
            HolderView(bulk_token.lease_id, bulk_token.process, "acme", bulk_token.job, 1, 300.0),
        )

    async def inspect(self, plan: Plan, *, events: int = 50) -> GateView:
        return GateView(None, None, self.holders, (), (), ())

    async def inspect_many(self, plans: Sequence[Plan], *, events: int = 0) -> list[GateView]:
        return [await self.inspect(plan) for plan in plans]

    async def enter_own(self) -> None:
        """Take a place, or go on in the one of an earlier run of this job."""
        async with self.bulks.enter(BulkRequest(SHOP, "query", "2025-10", knows_running=True)):
            pass

    async def connection(self, key: ConnectionKey) -> Connection:
        number = 1 if key.tenant == "acme" else 2
        return Connection(UUID(int=number), key, None, f"shop-{number}", "app", {}, self.settings)

    async def search(self) -> list[Override]:
        """What is switched by hand, as a store tells it."""
        return self.override_store

    async def switch(self, act: OverrideKind) -> None:
        """Somebody switches it by hand, and it is seen."""
        self.override_store = [Override(act, OverrideScope(), "because", "ops", datetime.now(UTC))]
        await self.overrides.refresh()

    async def begin(self, key: ConnectionKey = SHOP, running_id: str = RUNNING, **fields: str) -> str:
        """Begin an operation and go; its token."""
        async with self.bulks.enter(
            BulkRequest(key, "query", **({"api_version": "2025-10"} | fields))
        ) as operation:  # type: ignore[arg-type]
            operation.started(running_id)
            return operation.token

    async def fail(self, why: str, running_id: str = "") -> None:
        """Take a place, perhaps begin an operation, and fail."""
        async with self.bulks.enter(BulkRequest(SHOP, "query", "2025-10")) as operation:
            if running_id:
                operation.started(running_id)
            raise ValueError(why)

    async def come_back(self, token: str, *, done: bool = False) -> str | None:
        """Come back for it."""
        async with self.bulks.enter(BulkRequest(SHOP, "query", "2025-10", token)) as operation:
            running_id = operation.running_id
            if done:
                operation.finished()
            return running_id

    async def is_free(self, key: ConnectionKey = SHOP) -> bool:
        """Whether a place can be had now; it is given back."""
        try:
            async with self.bulks.enter(BulkRequest(key, "query", "2025-10")):
                return True
        except BulkLimitReachedError:
            return False


async def _ready() -> None:
    return None


@dataclass
class Fleet:
    timed: Timed
    clock: ManualClock
    losses: RedisDataLoss | None = None

    def process(self, name: str, **settings: object) -> Process:
        return Process(self.timed, self.clock, name, settings, self.losses)

    @contextmanager
    def in_job(self, job_id: str) -> Iterator[None]:
        """What is done in the block is done by a run of a job."""
        job: Any = SimpleNamespace(job_id=job_id, attempt=1)
        running = current_job.set(JobContext(job, lambda: 60.0))
        try:
            yield
        finally:
            current_job.reset(running)

    async def tick(self, seconds: float) -> None:
        self.timed.tick(seconds)
        await self.clock.advance(seconds)
