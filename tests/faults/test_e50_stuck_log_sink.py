"""E50: nobody reads the log any more, or its disk is full.

The event loop of a process that talks much never waits for its lines, jobs go on, and what is dropped is
counted: once there is a reader, or room, again, a line tells how many. A process that is told to end does so
although nobody reads what it has to say.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.support.child import Child
from tests.faults.support.load import Load, all_begin
from tests.faults.support.report import Figures, sized
from tests.faults.support.smalldisk import small_disk, why_not
from tests.faults.support.stage import Stage, until
from tests.support.standstill import passed, patience, ran_s

pytestmark = pytest.mark.slow

STUCK_S = sized(2.0, 60.0)
QUEUED_BYTES = sized(32 << 10, 512 << 10)  # the product's 4 MiB take many minutes to fill
FULL_WITHIN_S = sized(30.0, 300.0)
STALL_BOUND_S = 0.05
EXIT_BOUND_S = 5.0
SLOTS = 8
LAST_WORDS = b"draining; "  # among the lines, but none of the log


class _Pipe:
    """A pipe with a name, whose reader has stopped until `read_on`; then all that comes is kept."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "outputs"
        os.mkfifo(self.path)
        self._reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.got = b""

    def look(self) -> bytes:
        """All that has come."""
        try:
            while data := os.read(self._reader, 1 << 16):
                self.got += data
        except BlockingIOError:
            pass
        return self.got

    def fill(self) -> None:
        """To the last byte: a short line may fit where a long one has to wait."""
        writer = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            while True:
                os.write(writer, b".")
        except BlockingIOError:
            os.close(writer)

    def close(self) -> None:
        os.close(self._reader)


@dataclass
class _Talk:
    """What *child* has told of itself, and what became of it where its lines go (*look*)."""

    child: Child
    ledger: Path
    look: Callable[[], bytes]

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ledger.read_text().splitlines()]

    def stall_s(self, since_s: float, until_s: float) -> float:
        """The longest within these moments; one that has not ended is told by nobody."""
        within = [line for line in self.told() if since_s <= line["t"] <= until_s]
        silent_s = ran_s(max((line["t"] for line in within), default=since_s), until_s)
        return max([line["stall_s"] for line in within] + ([silent_s] if silent_s > 1.0 else []))

    async def dropped(self) -> None:
        """Return once lines were dropped."""

        async def are_dropped() -> bool:
            return bool(self.told()[-1]["dropped"] > 0)

        await until(are_dropped, "lines are dropped", FULL_WITHIN_S)

    def lines(self) -> list[dict[str, Any]]:
        """Of its log, those that came whole: the last one before a disk was full is cut off."""
        lines = self.look().split(b"\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"}")]

    def judge(self, figures: Figures) -> None:
        """Every line was read or is counted as dropped."""
        last, lines = self.told()[-1], self.lines()
        counted = sum(line["count"] for line in lines if line["event"] == "log_dropped")
        read = sum("timestamp" in line and line["event"] != "log_dropped" for line in lines)
        read += self.look().count(LAST_WORDS)
        figures.note(lines=last["given"], read=read, dropped=last["dropped"], dropped_told=counted)
        figures.zero(drops_not_told=last["dropped"] - counted)
        figures.holds(read + counted >= last["given"], "lines went unseen and uncounted")


@asynccontextmanager
async def _talking(
    stage: Stage, load: Load, ledgers: Path, outputs: Path, **order: Any
) -> AsyncIterator[Child]:
    """A process at work, to which jobs come for as long as the block lasts."""
    sink, ledger = ledgers / "sink.ndjson", ledgers / "ledger.ndjson"
    numbers = {"concurrency": SLOTS, "poll_s": 0.2, "lease_s": 30.0}
    order |= {"outputs": str(outputs), "ledger": str(ledger), "queued_bytes": QUEUED_BYTES}
    child = await stage.born(child="talker", sink=str(sink), worker=numbers, **order)
    async with load.coming():
        await all_begin(sink, [child])
        yield child


@pytest.fixture
def ledgers() -> Iterator[Path]:
    """A folder in memory: a disk that others keep busy holds up whoever writes a ledger."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[_Pipe]:
    pipe = _Pipe(tmp_path)
    yield pipe
    pipe.close()


async def test_E50_log_without_a_reader(stage: Stage, ledgers: Path, pipe: _Pipe) -> None:
    figures = Figures("E50")
    figures.note(what="a pipe whose reader stopped", faults=1, stuck_s=STUCK_S)
    load = Load(await stage.born(), figures)
    async with _talking(stage, load, ledgers, pipe.path) as child:
        talk = _Talk(child, ledgers / "ledger.ndjson", pipe.look)
        since_s = time.monotonic()
        await talk.dropped()
        await asyncio.sleep(STUCK_S)
        await all_begin(ledgers / "sink.ndjson", [child])
        stall_s = talk.stall_s(since_s, time.monotonic())
        pipe.look()
    await load.all_ended(stage)
    await load.judge(stage, ledgers / "sink.ndjson")
    await _ended(child, pipe)
    talk.judge(figures)
    _judge_stall(figures, stall_s)
    figures.conclude()


async def _ended(child: Child, pipe: _Pipe) -> None:
    """Told to end, and its last words read."""
    child.terminate()
    dying = asyncio.create_task(child.died())
    while not dying.done():
        pipe.look()
        await asyncio.sleep(0.01)
    await dying
    pipe.look()


def _judge_stall(figures: Figures, stall_s: float) -> None:
    figures.note(max_stall_ms=round(stall_s * 1000, 1))
    figures.holds(stall_s <= STALL_BOUND_S, f"the loop stood still for {stall_s * 1000:.0f} ms")


async def test_E50_process_ends_although_its_log_has_no_reader(
    stage: Stage, ledgers: Path, pipe: _Pipe
) -> None:
    figures = Figures("E50")
    figures.note(what="told to end while nobody reads")
    load = Load(await stage.born(), figures)
    async with _talking(stage, load, ledgers, pipe.path) as child:
        await _Talk(child, ledgers / "ledger.ndjson", pipe.look).dropped()
    pipe.fill()
    await load.all_ended(stage)
    began_s = time.monotonic()
    child.terminate()
    try:
        async with patience(2 * EXIT_BOUND_S):
            await child.died()
    except TimeoutError:
        figures.holds(False, "it does not end")
    exit_s = ran_s(began_s)
    figures.note(n=1, exit_s=round(exit_s, 2), code=child.code)
    figures.holds(exit_s <= EXIT_BOUND_S, f"gone after {exit_s:.1f} s")
    figures.holds(child.code == 0, f"its exit code is {child.code}")
    figures.conclude()


@contextmanager
def _log_disk() -> Iterator[tuple[Any, Path]]:
    with small_disk(1) as disk:
        yield disk, disk.folder / "log"


@pytest.mark.skipif(bool(why_not()), reason=why_not())
async def test_E50_the_disk_of_the_log_is_full(stage: Stage, ledgers: Path) -> None:
    figures = Figures("E50")
    figures.note(what="a full disk", faults=1, stuck_s=STUCK_S)
    load = Load(await stage.born(), figures)
    with _log_disk() as (disk, log):
        async with _talking(stage, load, ledgers, log) as child:
            talk = _Talk(child, ledgers / "ledger.ndjson", log.read_bytes)
            disk.fill()
            since_s = time.monotonic()
            await talk.dropped()
            await asyncio.sleep(STUCK_S)
            await all_begin(ledgers / "sink.ndjson", [child])
            stall_s = talk.stall_s(since_s, time.monotonic())
            disk.free()
        await load.all_ended(stage)
        await load.judge(stage, ledgers / "sink.ndjson")
        child.terminate()
        await child.died()
        talk.judge(figures)
    _judge_stall(figures, stall_s)
    figures.conclude()


async def test_E50_ablation_waits_for_the_reader(stage: Stage, ledgers: Path, pipe: _Pipe) -> None:
    figures = Figures("E50", ablation="waits_for_the_reader", sees="the loop stood still")
    load = Load(await stage.born(), figures)
    async with _talking(stage, load, ledgers, pipe.path, unsafe=["waits_for_the_reader"]) as child:
        talk, since_s = _Talk(child, ledgers / "ledger.ndjson", pipe.look), time.monotonic()
        await passed(STUCK_S + 2.0)
        _judge_stall(figures, talk.stall_s(since_s, time.monotonic()))
    await child.kill()
    figures.conclude()
