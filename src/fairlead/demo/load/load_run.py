"""One run: processes that call, an upstream that counts, looks at the gate, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from fairlead._core.secret import Secret
from fairlead.assembly.gate import gate_keys, gate_viewer
from fairlead.demo.load.load_plan import Load
from fairlead.demo.load.load_view import LoadView
from fairlead.demo.load.series import LoadReport
from fairlead.demo.load.upstream import Told, Upstream
from fairlead.engine.ports import GateInspector, GateKeys, GateView
from fairlead.errors import DependencyUnavailableError, LimiterUnavailableError

START_S = 30.0
"""How long processes may take to begin."""
END_S = 20.0
"""How long after the last call began they may take to end, beyond the waits that they may make."""
MOST_LOOKED_AT = 8
"""Tenants whose state is read for each sample."""


class LoadRun:
    """Made for one run on the Redis at *url*, under *prefix*."""

    def __init__(self, load: Load, url: Secret, prefix: str, view: LoadView) -> None:
        self._load = load
        self._url = url
        self._prefix = prefix
        self._view = view
        self._keys: GateKeys = gate_keys(url, prefix)
        self._viewer: GateInspector = gate_viewer(url, prefix)
        self._series = view.series
        self._upstream = Upstream(load, self._hear)
        self._ready: set[int] = set()
        self._gone: set[int] = set()
        self._changed = asyncio.Event()

    async def play(self, server: str) -> LoadReport:
        """Run it, and judge. *server* names the Redis in the report."""
        try:
            with tempfile.TemporaryDirectory(prefix="fl-load-") as folder:
                listening = await self._upstream.open(Path(folder) / "upstream")
                try:
                    async with self._processes(Path(folder)) as processes:
                        await self._run(processes)
                finally:
                    listening.close()
                    await self._upstream.close()
        finally:
            await self._clear()
        return LoadReport(self._load, self._series, self._upstream.judge(self._series.turn_s), server)

    async def _clear(self) -> None:
        try:
            await self._keys.clear()
        except LimiterUnavailableError:  # what was seen until then is told all the same
            self._view.tell(f"Redis is away: the keys {self._prefix}* stay there until their time is over")

    def _hear(self, rank: int, told: Told) -> None:
        if "figures" in told:
            self._series.hear(rank, told["figures"])
        elif "event" in told:
            self._series.events[told["event"]] += 1
        elif "rank" in told:
            self._ready.add(rank)
            self._changed.set()
        else:
            self._gone.add(rank)
            self._changed.set()

    # ---- processes

    @asynccontextmanager
    async def _processes(self, folder: Path) -> AsyncIterator[list[asyncio.subprocess.Process]]:
        """Running for the block, and gone after it."""
        made: list[asyncio.subprocess.Process] = []
        with (folder / "words").open("wb") as words:
            self._words = folder / "words"
            try:
                while len(made) < self._load.processes:
                    command = (
                        "-m",
                        "fairlead.demo.load.load_process",
                        str(folder / "upstream"),
                        str(len(made)),
                    )
                    process = await asyncio.create_subprocess_exec(
                        *(sys.executable, *command),
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=words,
                        stderr=words,
                        start_new_session=True,  # Ctrl-C is for us; they end when their connection does
                    )
                    made.append(process)
                yield made
            finally:
                await self._upstream.close()
                await asyncio.gather(*(_ended(process) for process in made))

    async def _until(self, have: set[int], within_s: float) -> None:
        """Return when all processes are in *have*; DependencyUnavailableError if one never is."""
        everybody = set(range(self._load.processes))
        try:
            async with asyncio.timeout(within_s):
                while not have >= everybody:
                    if self._gone - have:
                        break
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        if not have >= everybody:
            told = self._words.read_text(errors="replace")[-1500:].strip()
            raise DependencyUnavailableError(
                f"a process of the load ended, or did not answer:\n{told}",
                hint="fewer --processes or a lower --rate may be all this machine can bear",
            )

    # ---- the run

    async def _run(self, processes: list[asyncio.subprocess.Process]) -> None:
        load = self._load
        self._view.tell(f"starting {load.processes} processes")
        await self._until(self._ready, START_S)
        order = {"load": asdict(load), "url": self._url.reveal(), "prefix": self._prefix}
        for rank in range(load.processes):
            self._upstream.tell(rank, order)
        began_s = time.monotonic()
        every_s = max(0.25, min(0.5, load.seconds / 20), load.seconds / 120)
        while time.monotonic() - began_s < load.seconds - every_s / 2 and not self._gone:
            await asyncio.sleep(every_s)
            await self._look(time.monotonic() - began_s)
        for rank in set(range(load.processes)) - self._gone:
            self._upstream.tell(rank, {"stop": True})
        self._view.tell("the last calls come to their end")
        await self._until(self._gone, END_S + load.wait_s + load.hold_s)
        await self._look(time.monotonic() - began_s)
        await self._upstream.close()
        codes = await asyncio.gather(*(_ended(process) for process in processes))
        if any(codes):
            await self._until(set(), 0)

    async def _look(self, at_s: float) -> None:
        plans = [self._load.limits(tenant) for tenant in self._load.names[:MOST_LOOKED_AT]]
        try:
            views: list[GateView] = await self._viewer.inspect_many(plans)
        except LimiterUnavailableError:
            views = []
        self._series.sample(at_s, self._upstream.in_flight.total(), views)
        self._view.show(at_s)


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Its exit code; it is killed if it does not end."""
    try:
        async with asyncio.timeout(END_S):
            return await process.wait()
    except TimeoutError:
        os.kill(process.pid, signal.SIGKILL)
        return await process.wait()
