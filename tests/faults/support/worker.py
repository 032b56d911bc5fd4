"""The child of an experiment: a real Runtime that takes orders over a socket, one JSON line each.

``refresh``, ``connect``, ``enqueue`` and so on call what a user's process would call. Some safeguard may be
taken out of it (support/unsafe.py), and a fault point may be armed at any time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import signal
import socket
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from fairlead._core import faultpoint
from fairlead._core.secret import Secret
from fairlead.assembly.config import Config
from fairlead.assembly.runtime import Roles
from fairlead.assembly.settings import Settings
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import ConnectionKey, NewJob
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.errors import FairleadError
from fairlead.events import Event, LoopStalled, SupersededWriteRefused
from fairlead.policy.jobs.job import Discard
from tests.faults.support import roads, versions
from tests.faults.support.sink import Sink
from tests.faults.support.unsafe import FaultRuntime

LOOK_S = 0.005


def fingerprint(token: str) -> str:
    """Tells tokens apart without telling them."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]


def main(channel: socket.socket, order: dict[str, Any]) -> None:
    """Live until told to stop, or until the other end is gone."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a full disk is an error, not a death
    if order.get("file_bytes") is not None:
        _limit_files(order["file_bytes"])
    _arm(order.get("fault", ""))
    roads.prepare(order)
    if order.get("newer"):
        versions.be_newer()
    asyncio.run(_Worker(order).live(channel))


def _arm(plan: str) -> None:
    faultpoint._armed = faultpoint._parse(plan)
    faultpoint._passes.clear()


def _limit_files(most_bytes: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))


def must_not_fail(working: asyncio.Task[None]) -> None:
    """A program whose run fails ends with it, so that a test sees it."""
    if not working.cancelled() and working.exception() is not None:
        traceback.print_exception(working.exception())
        os._exit(2)


class _Worker:
    """Carries out orders on one runtime."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._stale = 0
        self._stalls_s: list[float] = []
        self._sink = Sink(Path(order["sink"])) if order.get("sink") else None
        self._tasks: set[asyncio.Task[None]] = set()

    async def live(self, channel: socket.socket) -> None:
        reader, self._writer = await asyncio.open_connection(sock=channel, limit=1 << 22)
        FaultRuntime.order = self._order
        config = Config(Settings.model_validate(self._order["settings"]), {})
        self.runtime = await FaultRuntime.open(config, self.handlers())
        self.runtime.bus.subscribe(self._hear)
        roles = Roles(worker=bool(self._sink), scheduler=self._order.get("scheduler", False))
        working = asyncio.create_task(self.runtime.run(roles))
        started = asyncio.create_task(self.runtime.begun.event.wait())
        await asyncio.wait((working, started), return_when=asyncio.FIRST_COMPLETED)
        self._reply({"number": 0, "session_id": str(self.runtime._session_id())})
        working.add_done_callback(must_not_fail)
        while line := await reader.readline():
            order = json.loads(line)
            if order["what"] == "stop":
                break
            task = asyncio.create_task(self._carry_out(order))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            os._exit(1)  # whoever held the other end is gone
        self.runtime.stop()
        await working
        await self.runtime.close()
        self._reply({"number": order["number"]})

    def _hear(self, event: Event) -> None:
        if isinstance(event, SupersededWriteRefused):
            self._stale += event.count
        elif isinstance(event, LoopStalled):
            self._stalls_s.append(event.stall_s)

    async def _carry_out(self, order: dict[str, Any]) -> None:
        try:
            do: Callable[..., Awaitable[dict[str, Any]]] = getattr(self, f"do_{order['what']}")
            answer = await do(**order["how"])
        except FairleadError as error:
            answer = {
                "error": type(error).__name__,
                "said": str(error),
                "retry_after_s": error.retry_after_s,
            }
        except Exception as error:
            answer = {"error": type(error).__name__, "said": repr(error)}
        self._reply({"number": order["number"], **answer})

    def _reply(self, answer: dict[str, Any]) -> None:
        self._writer.write(json.dumps(answer).encode() + b"\n")

    # ---- orders

    async def do_connect(self, provider: str, grants: list[dict[str, Any]]) -> dict[str, Any]:
        """Store what the issuer gave; the ids in the order of *grants*."""
        views = await asyncio.gather(*(self._connect(provider, grant) for grant in grants))
        return {"ids": [str(view.connection_id) for view in views]}

    async def _connect(self, provider: str, grant: dict[str, Any]) -> Any:
        new_grant = Grant(
            access_token=Secret(grant["access_token"]),
            refresh_token=Secret(grant["refresh_token"]),
            expires_in_s=3600.0,
        )
        key = ConnectionKey(grant["connection"], provider)
        return await self.runtime.tokens.connections.upsert(key, new_grant, actor="test")

    async def do_refresh(
        self, connection: str, newer_than: int, wait_s: float | None = None, after_s: float = 0.0
    ) -> dict[str, Any]:
        """A refresh, as a caller in this process would ask for it."""
        await asyncio.sleep(after_s)
        fresh = await self.runtime.tokens.coordinator.refresh(UUID(connection), newer_than, wait_s=wait_s)
        token = fresh.tokens.access_token.reveal()
        return {
            "generation": fresh.generation,
            "refreshed": fresh.refreshed,
            "token": fingerprint(token),
            "at_s": time.monotonic(),
        }

    async def do_refresh_on(self, connections: list[str], at_once: int) -> dict[str, Any]:
        """Refresh these, new as they are, again and again, *at_once* at a time, until this process dies."""
        gate = asyncio.Semaphore(at_once)

        async def for_ever(connection: str) -> None:
            generation = 1
            while True:
                async with gate:
                    fresh = await self.runtime.tokens.coordinator.refresh(UUID(connection), generation)
                    generation = fresh.generation

        await asyncio.gather(*map(for_ever, connections))
        raise AssertionError("it goes on for ever")

    async def do_token(self, tenant: str, provider: str) -> dict[str, Any]:
        """What a caller is served."""
        served = await self.runtime.reader.token(ConnectionKey(tenant, provider))
        return {"token": fingerprint(served.access_token.reveal())}

    async def do_enqueue(self, jobs: list[dict[str, Any]]) -> dict[str, Any]:
        """Store jobs; return their ids, and what the wall clock of this process says."""
        stored = await self.runtime.jobs.enqueue(
            [NewJob(job_id=self.runtime.ids.uuid7(), **job) for job in jobs]
        )
        return {"ids": [str(enqueued.job_id) for enqueued in stored], "wall_s": time.time()}

    async def do_arm(self, plan: str) -> dict[str, Any]:
        """Arm fault points anew."""
        _arm(plan)
        return {}

    async def do_limit_files(self, most_bytes: int) -> dict[str, Any]:
        """A disk that is full from now on: no file grows past *most_bytes*, no byte is written behind it."""
        _limit_files(most_bytes)
        return {}

    async def do_told(self) -> dict[str, Any]:
        """Its events by name, how many late writes were refused, and which stalls of its loop it told of."""
        return {"events": self.runtime.bus.counts, "stale": self._stale, "stalls_s": self._stalls_s}

    async def do_idle(self) -> dict[str, Any]:
        """Return once nothing runs here and all that ended is written."""
        worker = self.runtime._worker
        assert worker is not None
        while worker.running or worker.acks.pending:
            await asyncio.sleep(LOOK_S)
        return {"stale": self._stale}

    # ---- jobs

    def handlers(self) -> list[Handler]:
        """What is run here."""
        jobs = {"work": self._work, "deaf": self._deaf, "fail": self._fail}
        jobs |= {"stuck": self._stuck, "thread": self._thread, "block": self._block}
        jobs |= {"die": self._die, "snooze": self._snooze, "late": self._late}
        timeout_s = self._order.get("timeout_s", 60.0)
        return [Handler(f"fault.{name}", run, timeout_s=timeout_s) for name, run in jobs.items()]

    async def _work(self, context: JobContext) -> object:
        """Began, work, effect; then done, or cancelled if ``args.cancel`` says so."""
        fields = self._began(context)
        await asyncio.sleep(context.args.get("work_s", 0.0))
        await self._pass_gate(context)
        effect = self._effect(fields)
        return context.cancel("as it was ordered") if context.args.get("cancel") else effect

    async def _deaf(self, context: JobContext) -> object:
        """As `_work`, but it ends as it began even if it is cancelled."""
        fields = self._began(context)
        until_s = time.monotonic() + context.args.get("work_s", 0.0)
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                await asyncio.sleep(left_s)
            except asyncio.CancelledError:
                break
        await self._pass_gate(context)
        return self._effect(fields)

    async def _stuck(self, context: JobContext) -> object:
        """As `_work`, whoever cancels it and however often."""
        fields = self._began(context)
        until_s = time.monotonic() + context.args["work_s"]
        while (left_s := until_s - time.monotonic()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(left_s)
        return self._effect(fields)

    async def _block(self, context: JobContext) -> object:
        """As `_work`, but its first run blocks the process for all of its time."""
        fields = self._began(context)
        if context.job.crash_count:
            await self._pass_gate(context)
        else:
            time.sleep(context.args["work_s"])
        return self._effect(fields)

    async def _thread(self, context: JobContext) -> object:
        """As `_work`, in a thread, which nobody can cancel."""
        fields = self._began(context)
        await asyncio.to_thread(time.sleep, context.args["work_s"])
        return self._effect(fields)

    async def _fail(self, context: JobContext) -> object:
        """As `_work`, but its first run fails."""
        fields = self._began(context)
        await self._pass_gate(context)
        if context.attempt == 1:
            raise ConnectionResetError("as it was ordered")
        return self._effect(fields)

    async def _die(self, context: JobContext) -> object:
        """As `_work`, and it is a dead letter then."""
        self._effect(self._began(context))
        return Discard("as it was ordered")

    async def _snooze(self, context: JobContext) -> object:
        """As `_work`, but its first run puts it off."""
        fields = self._began(context)
        if not context.saved:
            context.save("snoozed", True)
            return context.snooze(0.0)
        return self._effect(fields)

    async def _late(self, context: JobContext) -> object:
        """As `_work`, but its first run ends as ``args.late`` says, and freezes before that is written."""
        fields = self._began(context)
        if context.job.crash_count:
            await self._pass_gate(context)
            return self._effect(fields)
        _arm("job.before_ack:1:stop")
        match context.args["late"]:
            case "retry":
                raise ConnectionResetError("as it was ordered")
            case "dead_letter":
                return Discard("as it was ordered")
            case "cancel":
                return context.cancel("as it was ordered")
        return self._effect(fields)

    def _began(self, context: JobContext) -> dict[str, Any]:
        job = context.job
        fields = {"job": str(job.job_id), "lease": str(job.lease_id), "n": context.args["n"]}
        assert self._sink is not None
        self._sink.write(ev="began", **fields)
        return fields

    def _effect(self, fields: dict[str, Any]) -> object:
        assert self._sink is not None
        self._sink.write(ev="effect", **fields)
        return {"lease": fields["lease"]}

    async def _pass_gate(self, context: JobContext) -> None:
        """Where this process, or ``args.when``, names a file to wait for, wait until it is there."""
        for gate in (self._order.get("gate"), context.args.get("when")):
            while gate is not None and not Path(gate).exists():
                await asyncio.sleep(LOOK_S)
