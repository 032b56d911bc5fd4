"""The play: what happens when, and who looks on.

connect > run (callers call, acts come and go, a worker is killed) > settle > drain > judge
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

LOOK_EVERY_S = 0.5
SETTLE_S = 15.0
"""How long after the last act the outcome of every refresh must be known: longer than a token lives."""

LIMITED = Quirk(status=429, retry_after="1")
DOWN = Quirk(status=503)

Act = Callable[[], Awaitable[object]]


class DemoRun:
    """One performance in *world*, shown by *view*."""

    def __init__(self, world: DemoEnvironment, scene: DemoState, view: DemoView) -> None:
        self._world = world
        self._plan = world.plan
        self._scene = scene
        self._tell = view.tell
        self._view = view
        self._recovery: Recovery | None = None

    async def play(self) -> DemoReport:
        """Perform, and judge."""
        watch = await self._prepare()
        callers = Callers(self._world.fairlead, self._world.issuer.url, self._plan.seed)
        self._scene.tally = callers.tally
        self._scene.began_s = time.monotonic()
        self._tell("the run begins")
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._look_on(watch))
            calling = group.create_task(callers.run())
            await self._acts()
            calling.cancel()
            looking.cancel()
        await self._settle(watch)
        return await self._end()

    async def _prepare(self) -> ConnectionWatch:
        world, scene = self._world, self._scene
        self._tell(f"demo profile: {LINE}")
        scene.workers = world.workers
        started = [await world.start_worker() for _ in range(WORKERS)]
        await world.connect()
        self._tell(f"{len(ACCOUNTS)} connections of {len(TENANTS)} tenants are connected")
        for worker in started:
            await world.at_work(worker)
            self._tell(f"{worker.name} works (pid {worker.pid})")
        scene.provider = IssuerTraffic(world.issuer.ledger_path)
        scene.watch = ConnectionWatch(world.runtime, scene.provider, self._tell)
        return scene.watch

    async def _look_on(self, watch: ConnectionWatch) -> None:
        while True:
            await watch.look()
            self._scene.retries.look([worker.log for worker in self._world.workers])
            self._view.show(self._scene.age_s)
            await asyncio.sleep(LOOK_EVERY_S)

    # ---- acts ----------------------------------------------------------------------------------

    async def _acts(self) -> None:
        plan = self._plan
        async with asyncio.TaskGroup() as acts:
            for at_s, account in zip(plan.revoke_at_s, plan.leaving(), strict=True):
                acts.create_task(self._at(at_s, partial(self._leave, account)))
            limited = partial(self._spell, LIMITED, "429 with Retry-After: 1")
            acts.create_task(self._at(plan.limited_at_s, limited))
            acts.create_task(self._at(plan.down_at_s, partial(self._spell, DOWN, "503")))
            acts.create_task(self._at(plan.killed_at_s, self._kill))
            await asyncio.sleep(plan.seconds)

    async def _at(self, at_s: float, act: Act) -> None:
        await asyncio.sleep(max(0.0, at_s - self._scene.age_s))
        await act()

    async def _leave(self, account: DemoAccount) -> None:
        await self._world.issuer.control(
            "revoke", provider=account.key.provider, connection=account.name, reason="customer"
        )
        self._tell(f"{account.label}: the customer withdraws the grant")

    async def _spell(self, quirk: Quirk, words: str) -> None:
        length_s = self._plan.spell_s
        await self._world.issuer.control(
            "rule", quirk=quirk.model_dump(exclude_defaults=True), for_s=length_s
        )
        self._tell(f"every provider answers {words}, for {length_s:g} s")
        await asyncio.sleep(length_s)
        self._tell("the providers are well again")

    async def _kill(self) -> None:
        victim = self._world.workers[0]
        session = await self._world.at_work(victim)
        self._recovery = recovery = Recovery(session.session_id)
        await recovery.wait_busy(self._world.runtime)
        recovery.killed_s = time.monotonic()
        await victim.kill()
        self._tell(f"{victim.name} is killed (SIGKILL)")
        async with asyncio.TaskGroup() as after:
            after.create_task(self._replace(victim))
            await recovery.follow(self._world.runtime, self._tell)

    async def _replace(self, victim: WorkerProcess) -> None:
        await asyncio.sleep(REPLACED_AFTER_S)
        worker = await self._world.start_worker()
        await self._world.at_work(worker)
        self._tell(f"{worker.name} takes the place of {victim.name} (pid {worker.pid})")

    # ---- the end -------------------------------------------------------------------------------

    async def _settle(self, watch: ConnectionWatch) -> None:
        """Wait until no outcome is unknown and every customer who left is missed, for a token's life."""
        self._tell("the last act is over; what is in flight comes to its end")
        until_s = self._scene.age_s + SETTLE_S
        while self._open_ends(await watch.look()) and self._scene.age_s < until_s:
            self._view.show(self._scene.age_s)
            await asyncio.sleep(LOOK_EVERY_S)

    def _open_ends(self, sample: ConnectionSample) -> bool:
        left = {account.key for account in self._plan.leaving()}
        return bool(sample.states.get("unknown")) or not left <= sample.needs_reauth

    async def _end(self) -> DemoReport:
        world, scene = self._world, self._scene
        exit_codes = await world.stop_workers()
        self._tell(f"{', '.join(exit_codes)} drained and stopped")
        await world.runtime.tokens.coordinator.drain(REFRESH_LEASE_S)
        books = await FinalState.read(world.runtime)
        took_s = scene.age_s
        ledger = await world.end_issuer()
        assert self._recovery is not None
        run = RunNotes(self._plan, scene.tally, self._plan.leaving(), self._recovery, exit_codes, 1, took_s)
        return DemoJudge(run, books, ledger).report()
