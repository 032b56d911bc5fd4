"""One run of a load: processes that call, an upstream that counts, samples of the gate, and a clean end."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from fairlead._core.secret import Secret
from fairlead.assembly.gate import gate_keys, gate_viewer
from fairlead.demo.child_process import ChildProcess
from fairlead.demo.load.load_plan import Load
from fairlead.demo.load.load_view import LoadView
from fairlead.demo.load.series import LoadReport
from fairlead.demo.load.upstream import Message, Upstream
from fairlead.engine.ports import GateInspector, GateKeys, GateView
from fairlead.errors import DependencyUnavailableError, LimiterUnavailableError

START_S = 30.0
"""How long processes may take to start."""
END_S = 20.0
"""How long processes may take to end after the last call, beyond its wait and hold."""
MAX_SAMPLED_TENANTS = 8


class LoadRun:
    """One run on the Redis at *url*, with keys under *prefix*."""

    def __init__(self, load: Load, url: Secret, prefix: str, view: LoadView) -> None:
        self._load = load
        self._url = url
        self._prefix = prefix
        self._view = view
        self._keys: GateKeys = gate_keys(url, prefix)
        self._inspector: GateInspector = gate_viewer(url, prefix)
        self._series = view.series
        self._upstream = Upstream(load, self._receive)
        self._ready: set[int] = set()
        self._ended: set[int] = set()
        self._changed = asyncio.Event()

    async def run(self, server: str) -> LoadReport:
        """Run the load, and check the result; *server* names the Redis in the report."""
        try:
            with tempfile.TemporaryDirectory(prefix="fl-load-") as folder:
                listener = await self._upstream.open(Path(folder) / "upstream")
                try:
                    async with self._processes(Path(folder)) as processes:
                        await self._run(processes)
                finally:
                    listener.close()
                    await self._upstream.close()
        finally:
            await self._clear()
        check = self._upstream.check(self._series.max_admission_s)
        return LoadReport(self._load, self._series, check, server)

    async def _clear(self) -> None:
        try:
            await self._keys.clear()
        except LimiterUnavailableError:  # the report is still valid
            self._view.tell(f"Redis is unavailable: the keys {self._prefix}* stay there until they expire")

    def _receive(self, rank: int, message: Message) -> None:
        if "figures" in message:
            self._series.add(rank, message["figures"])
        elif "event" in message:
            self._series.events[message["event"]] += 1
        else:
            (self._ready if "rank" in message else self._ended).add(rank)
            self._changed.set()

    # ---- processes

    @asynccontextmanager
    async def _processes(self, folder: Path) -> AsyncIterator[list[ChildProcess]]:
        """Start the processes that make the calls, and end them after the block."""
        self._log = folder / "log"
        processes = [
            ChildProcess(
                self._log, "-m", "fairlead.demo.load.load_process", str(folder / "upstream"), str(rank)
            )
            for rank in range(self._load.processes)
        ]
        try:
            for process in processes:
                await process.start()
            yield processes
        finally:
            await self._upstream.close()
            await asyncio.gather(*(process.wait(END_S) for process in processes))

    async def _wait_all(self, ranks: set[int], within_s: float) -> None:
        """Return when all processes are in *ranks*; raise DependencyUnavailableError if one never is."""
        all_ranks = set(range(self._load.processes))
        try:
            async with asyncio.timeout(within_s):
                while not ranks >= all_ranks and not self._ended - ranks:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        if not ranks >= all_ranks:
            raise self._process_failed()

    def _process_failed(self) -> DependencyUnavailableError:
        log = self._log.read_text(errors="replace")[-1500:].strip()
        return DependencyUnavailableError(
            f"a process of the load ended, or did not respond:\n{log}",
            hint="fewer --processes or a lower --rate may be all that this machine can run",
        )

    # ---- the run

    async def _run(self, processes: list[ChildProcess]) -> None:
        load = self._load
        self._view.tell(f"starting {load.processes} processes")
        await self._wait_all(self._ready, START_S)
        order = {"load": asdict(load), "url": self._url.reveal(), "prefix": self._prefix}
        for rank in range(load.processes):
            self._upstream.send(rank, order)
        started_mono = time.monotonic()
        every_s = max(0.25, min(0.5, load.seconds / 20), load.seconds / 120)
        while time.monotonic() - started_mono < load.seconds - every_s / 2 and not self._ended:
            await asyncio.sleep(every_s)
            await self._sample(time.monotonic() - started_mono)
        for rank in set(range(load.processes)) - self._ended:
            self._upstream.send(rank, {"stop": True})
        self._view.tell("waiting for the last calls")
        await self._wait_all(self._ended, END_S + load.wait_s + load.hold_s)
        await self._sample(time.monotonic() - started_mono)
        await self._upstream.close()
        if any(await asyncio.gather(*(process.wait(END_S) for process in processes))):
            raise self._process_failed()

    async def _sample(self, elapsed_s: float) -> None:
        plans = [self._load.limits(tenant) for tenant in self._load.names[:MAX_SAMPLED_TENANTS]]
        try:
            views: list[GateView] = await self._inspector.inspect_many(plans)
        except LimiterUnavailableError:
            views = []
        self._series.sample(elapsed_s, self._upstream.in_flight.total(), views)
        self._view.show(elapsed_s)
