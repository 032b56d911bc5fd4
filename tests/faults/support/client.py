"""A child that is a user's program: a `Fairlead` that calls APIs through its client, and works off such jobs.

Its order has, besides what a stage gives: ``redis`` (url and prefix), ``overlays`` of profiles by provider,
and ``targets``, which `run` calls in an open loop: {tenant, provider, url, name, deadline_s}. A job
``fault.call`` makes one call. With "no_spread" among what is ``unsafe`` it waits exactly as long as it was
told, like all others who were told the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
import traceback
from collections import Counter
from contextlib import suppress
from typing import Any

from fairlead import Fairlead, JobContext, JobRequest, Roles
from fairlead.assembly.config import Config
from fairlead.assembly.settings import Settings
from fairlead.errors import CallFailedError, FairleadError, NotSentError
from fairlead.events import Event, GateBreakerClosed, GateBreakerOpened
from fairlead.policy.failures import retry, strategy
from fairlead.policy.failures.hint import clamp_hint
from tests.faults.support.worker import must_not_fail


def main(channel: socket.socket, order: dict[str, Any]) -> None:
    """Live until told to stop, or until the other end is gone."""
    if "no_spread" in order.get("unsafe", ()):
        for module in (strategy, retry):
            module.hinted_delay = _exactly  # type: ignore[attr-defined]
    asyncio.run(_Program(order).live(channel))


def _exactly(hint_s: float, cap_s: float, _d: float, _draw: float) -> float:
    return clamp_hint(hint_s, cap_s=cap_s)


def _settings(order: dict[str, Any]) -> Settings:
    settings = order["settings"] | {"redis": order["redis"]}
    overlays = {name: {"overlay": table} for name, table in order.get("overlays", {}).items()}
    for name, table in overlays.items():
        settings["providers"][name] = settings["providers"].get(name, {}) | table
    return Settings.model_validate(settings)


class _Program:
    """Carries out orders."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._fl = Fairlead(Config(_settings(order), {}))
        self._fl.job(kind="fault.call")(self._job)
        self._told: dict[str, Counter[str]] = {}
        self._breakers: list[tuple[str, str, str, float]] = []
        self._loops: list[asyncio.Task[None]] = []
        self._resting = False

    async def live(self, channel: socket.socket) -> None:
        reader, self._writer = await asyncio.open_connection(sock=channel, limit=1 << 22)
        async with self._fl as fl:
            fl.runtime.bus.subscribe(self._hear)
            working = asyncio.create_task(
                fl.run(
                    Roles(worker=bool(self._order.get("works")), scheduler=self._order.get("scheduler", True))
                )
            )
            await self._begun(working)
            self._reply({"number": 0, "session_id": self._order["redis"]["prefix"]})
            working.add_done_callback(must_not_fail)
            while line := await reader.readline():
                order = json.loads(line)
                if order["what"] == "stop":
                    break
                answer = await getattr(self, f"_{order['what']}")(**order["how"])
                self._reply({"number": order["number"]} | answer)
            else:
                os._exit(1)
            await self._rest()
            fl.stop()
            await working
        self._reply({"number": order["number"]})

    async def _begun(self, _working: asyncio.Task[None]) -> None:
        """Return once it is as far as its test needs it."""

    def _reply(self, answer: dict[str, Any]) -> None:
        self._writer.write(json.dumps(answer).encode() + b"\n")

    def _hear(self, event: Event) -> None:
        if isinstance(event, GateBreakerOpened | GateBreakerClosed):
            self._breakers.append((event.name, event.tenant, event.host, time.monotonic()))

    # ---- orders

    async def _connect(self, connections: list[dict[str, Any]]) -> dict[str, Any]:
        """Store connections as `connections.upsert` takes them."""
        views = await asyncio.gather(*(self._fl.connections.upsert(**fields) for fields in connections))
        return {"ids": [str(view.connection_id) for view in views]}

    async def _enqueue(self, jobs: list[dict[str, Any]]) -> dict[str, Any]:
        """One ``fault.call`` for each of *jobs*: {tenant, provider, url}."""
        await self._fl.enqueue_many(JobRequest("fault.call", {"url": job.pop("url")}, **job) for job in jobs)
        return {}

    async def _run(self) -> dict[str, Any]:
        self._loops = [asyncio.create_task(self._calls(target)) for target in self._order["targets"]]
        return {}

    async def _rest(self) -> dict[str, Any]:
        self._resting = True
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._loops)
        return await self._figures()

    async def _figures(self) -> dict[str, Any]:
        return {"told": self._told, "breakers": self._breakers}

    # ---- calls

    async def _job(self, context: JobContext, url: str) -> None:
        assert context.provider is not None
        async with self._fl.client(context.tenant, context.provider) as api:
            await api.get(url, deadline_s=30.0)

    async def _calls(self, target: dict[str, Any]) -> None:
        counts = self._told.setdefault(target["name"], Counter())
        tasks = set[asyncio.Task[None]]()
        while not self._resting:
            task = asyncio.create_task(self._call(target, counts))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            await asyncio.sleep(self._order["every_s"])
        await asyncio.gather(*tasks)

    async def _call(self, target: dict[str, Any], counts: Counter[str]) -> None:
        try:
            async with self._fl.client(target["tenant"], target["provider"]) as api:
                await api.get(target["url"], wait_s=0.0, deadline_s=target["deadline_s"])
        except (CallFailedError, NotSentError):
            counts["failed"] += 1
        except FairleadError as error:
            counts[error.reason or error.code] += 1
        except Exception:
            traceback.print_exc()
            counts["error"] += 1
        else:
            counts["done"] += 1
