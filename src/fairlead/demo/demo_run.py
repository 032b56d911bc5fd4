"""The run: the faults in their order, and the samples meanwhile.

connect > run (callers call, providers fail, a worker is killed) > settle > drain > judge
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from fairlead.demo.demo_plan import ACCOUNTS, REPLACED_AFTER_S, TENANTS, DemoAccount
from fairlead.demo.demo_view import DemoState, DemoView
from fairlead.demo.environment import WORKERS, DemoEnvironment
from fairlead.demo.file_tail import IssuerTraffic
from fairlead.demo.profile import LINE, REFRESH_LEASE_S
from fairlead.demo.recovery import Recovery
from fairlead.demo.report import DemoJudge, DemoReport, FinalState, RunNotes
from fairlead.demo.token_callers import Callers
from fairlead.demo.watch import ConnectionSample, ConnectionWatch
from fairlead.demo.worker import WorkerProcess
from fairlead.testing.issuer import Quirk

SAMPLE_EVERY_S = 0.5
SETTLE_S = 15.0
"""For so long after the last fault an outcome may be unknown: longer than a token lives."""

LIMITED = Quirk(status=429, retry_after="1")
DOWN = Quirk(status=503)

Fault = Callable[[], Awaitable[object]]


class DemoRun:
    """One run in *environment*, shown by *view*."""

    def __init__(self, environment: DemoEnvironment, state: DemoState, view: DemoView) -> None:
        self._environment = environment
        self._plan = environment.plan
        self._state = state
        self._report = view.tell
        self._view = view
        self._recovery: Recovery | None = None

    async def run(self) -> DemoReport:
        """Run the plan, and judge the result."""
        watch = await self._prepare()
        callers = Callers(self._environment.fairlead, self._environment.issuer.url, self._plan.seed)
        self._state.tally = callers.tally
        self._state.started_mono = time.monotonic()
        self._report("the run begins")
        async with asyncio.TaskGroup() as group:
            sampling = group.create_task(self._sample(watch))
            calling = group.create_task(callers.run())
            await self._inject_faults()
            calling.cancel()
            sampling.cancel()
        await self._settle(watch)
        return await self._end()

    async def _prepare(self) -> ConnectionWatch:
        environment, state = self._environment, self._state
        self._report(f"demo profile: {LINE}")
        state.workers = environment.workers
        workers = [await environment.start_worker() for _ in range(WORKERS)]
        await environment.connect()
        self._report(f"{len(ACCOUNTS)} connections of {len(TENANTS)} tenants are connected")
        for worker in workers:
            await environment.wait_working(worker)
            self._report(f"{worker.name} works (pid {worker.pid})")
        state.traffic = IssuerTraffic(environment.issuer.ledger_path)
        state.watch = ConnectionWatch(environment.runtime, state.traffic, self._report)
        return state.watch

    async def _sample(self, watch: ConnectionWatch) -> None:
        while True:
            await watch.sample()
            self._state.retries.update([worker.log for worker in self._environment.workers])
            self._view.show(self._state.age_s)
            await asyncio.sleep(SAMPLE_EVERY_S)

    # ---- faults --------------------------------------------------------------------------------

    async def _inject_faults(self) -> None:
        plan = self._plan
        async with asyncio.TaskGroup() as faults:
            for after_s, account in zip(plan.revoke_after_s, plan.leaving(), strict=True):
                faults.create_task(self._inject_at(after_s, partial(self._withdraw_grant, account)))
            limited = partial(self._fail_providers, LIMITED, "429 with Retry-After: 1")
            faults.create_task(self._inject_at(plan.limited_after_s, limited))
            faults.create_task(self._inject_at(plan.down_after_s, partial(self._fail_providers, DOWN, "503")))
            faults.create_task(self._inject_at(plan.killed_after_s, self._kill_worker))
            await asyncio.sleep(plan.seconds)

    async def _inject_at(self, after_s: float, fault: Fault) -> None:
        """Inject *fault* once the run is *after_s* old."""
        await asyncio.sleep(max(0.0, after_s - self._state.age_s))
        await fault()

    async def _withdraw_grant(self, account: DemoAccount) -> None:
        await self._environment.issuer.control(
            "revoke", provider=account.key.provider, connection=account.name, reason="customer"
        )
        self._report(f"{account.label}: the customer withdraws the grant")

    async def _fail_providers(self, quirk: Quirk, words: str) -> None:
        length_s = self._plan.outage_s
        await self._environment.issuer.control(
            "rule", quirk=quirk.model_dump(exclude_defaults=True), for_s=length_s
        )
        self._report(f"every provider answers {words}, for {length_s:g} s")
        await asyncio.sleep(length_s)
        self._report("the providers work again")

    async def _kill_worker(self) -> None:
        """Kill a busy worker, measure the recovery, and start another one meanwhile."""
        victim = self._environment.workers[0]
        session = await self._environment.wait_working(victim)
        self._recovery = recovery = Recovery(session.session_id)
        await recovery.wait_busy(self._environment.runtime)
        recovery.killed_mono = time.monotonic()
        await victim.kill()
        self._report(f"{victim.name} is killed (SIGKILL)")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._replace_worker(victim))
            await recovery.follow(self._environment.runtime, self._report)

    async def _replace_worker(self, victim: WorkerProcess) -> None:
        await asyncio.sleep(REPLACED_AFTER_S)
        worker = await self._environment.start_worker()
        await self._environment.wait_working(worker)
        self._report(f"{worker.name} replaces {victim.name} (pid {worker.pid})")

    # ---- the end -------------------------------------------------------------------------------

    async def _settle(self, watch: ConnectionWatch) -> None:
        """Wait until no outcome is unknown and every leaving customer was noticed, for the life of a token."""
        self._report("the last fault is over; requests in flight come to their end")
        until_s = self._state.age_s + SETTLE_S
        while self._is_unsettled(await watch.sample()) and self._state.age_s < until_s:
            self._view.show(self._state.age_s)
            await asyncio.sleep(SAMPLE_EVERY_S)

    def _is_unsettled(self, sample: ConnectionSample) -> bool:
        leaving = {account.key for account in self._plan.leaving()}
        return bool(sample.states.get("unknown")) or not leaving <= sample.needs_reauth

    async def _end(self) -> DemoReport:
        environment, state = self._environment, self._state
        exit_codes = await environment.stop_workers()
        self._report(f"{', '.join(exit_codes)} drained and stopped")
        await environment.runtime.tokens.coordinator.drain(REFRESH_LEASE_S)
        final_state = await FinalState.read(environment.runtime)
        took_s = state.age_s
        ledger = await environment.end_issuer()
        assert self._recovery is not None
        run = RunNotes(self._plan, state.tally, self._plan.leaving(), self._recovery, exit_codes, 1, took_s)
        return DemoJudge(run, final_state, ledger).report()
