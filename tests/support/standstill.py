"""How long this machine stood still: time that passed for its clock, and for no process on one of its cores.

A virtual machine is paused, or its cores are lent to others, for tenths of a second or for seconds at a time.
Tests subtract such times from what they measure by the clock, because a process on such a core could do
nothing. What must hold at any speed (nothing lost, nothing twice, never over a limit) is not corrected.

A thread on each core sleeps for some ms at a time, ahead of every other process where it may, and writes down
when it slept on for much longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from functools import reduce
from itertools import accumulate
from pathlib import Path

FOLDER = "STANDSTILLS_ARE_IN"
"""The variable that names the folder of the watcher, to every process of a run."""
NAP_S = 0.01
LEAST_S = 0.03
"""So much too long a nap counts."""
KNOWN_WITHIN_S = 60.0
_SPAN = struct.Struct("<dd")
_ALIVE = struct.Struct("<d")
AHEAD, IN_TURN = "ahead", "in-turn"
"""How the thread of a core takes its place among all others."""

Span = tuple[float, float]
"""(begin, end) in seconds of the monotonic clock."""


def ran_s(since_s: float, until_s: float | None = None) -> float:
    """Return the seconds between two monotonic instants (until: now) in which the machine ran.

    Without a watcher these are all seconds. It blocks only if the machine has just stood still.

    Raises:
        RuntimeError: The watcher did not pass the second instant within a minute, so it is gone.
    """
    return all_ran_s([(since_s, time.monotonic() if until_s is None else until_s)])[0]


def all_ran_s(times: Collection[tuple[float, float]]) -> list[float]:
    """Return the same for each (since, until)."""
    stood = Stood(spans(max((until_s for _, until_s in times), default=0.0)))
    return [until_s - since_s - stood.within_s(since_s, until_s) for since_s, until_s in times]


class Stood:
    """Times in which the machine stood still, (begin, end) in order and apart from each other."""

    def __init__(self, stood: Sequence[Span]) -> None:
        self._begins = [begin_s for begin_s, _ in stood]
        self._ends = [end_s for _, end_s in stood]
        self._before_s = [0.0, *accumulate(end_s - begin_s for begin_s, end_s in stood)]

    def within_s(self, since_s: float, until_s: float) -> float:
        """Return the seconds between two instants."""
        return self._until_s(until_s) - self._until_s(since_s)

    def _until_s(self, moment_s: float) -> float:
        started_count = bisect_right(self._begins, moment_s)
        over_s = max(0.0, self._ends[started_count - 1] - moment_s) if started_count else 0.0
        return self._before_s[started_count] - over_s


def spans(until_s: float) -> list[Span]:
    """Return the spans in which a core stood still, in order and disjoint, as known at an instant.

    Without a watcher there are none.

    A core on which the watcher has no priority may only have been busy. Such cores count only while all of them
    stood still at once.
    """
    if FOLDER not in os.environ:
        return []
    folder = Path(os.environ[FOLDER])
    _wait_for(folder, until_s)
    ahead, in_turn = ([_read(path) for path in sorted(folder.glob(f"{kind}-*"))] for kind in (AHEAD, IN_TURN))
    return either([*(span for core in ahead for span in core), *(reduce(both, in_turn) if in_turn else ())])


def either(stood: Iterable[Span]) -> list[Span]:
    """Merge overlapping spans; the result is in order and disjoint."""
    separate: list[Span] = []
    for begin_s, end_s in sorted(stood):
        if separate and begin_s <= separate[-1][1]:
            separate[-1] = (separate[-1][0], max(end_s, separate[-1][1]))
        else:
            separate.append((begin_s, end_s))
    return separate


def both(ours: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """Return the intersection of two lists of spans, each in order and disjoint."""
    common, indexes = [], [0, 0]
    while indexes[0] < len(ours) and indexes[1] < len(other):
        (begin_s, end_s), (others_begin_s, others_end_s) = ours[indexes[0]], other[indexes[1]]
        if min(end_s, others_end_s) > max(begin_s, others_begin_s):
            common.append((max(begin_s, others_begin_s), min(end_s, others_end_s)))
        indexes[end_s > others_end_s] += 1
    return common


async def passed(seconds: float) -> None:
    """Return after *seconds* in which the machine ran."""
    began_s = time.monotonic()
    while (left_s := seconds - ran_s(began_s)) > 0:
        await asyncio.sleep(left_s)


@contextlib.asynccontextmanager
async def patience(seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError after *seconds* in which the machine ran, like `asyncio.timeout`."""
    loop = asyncio.get_running_loop()
    began_s = time.monotonic()

    def look() -> None:
        nonlocal due
        try:
            left_s = seconds - ran_s(began_s)
        except RuntimeError:  # the wait must end
            left_s = 0.0
        if left_s > 0:
            due = loop.call_later(left_s, look)
        else:
            limit.reschedule(loop.time())

    due = loop.call_later(seconds, look)
    try:
        async with asyncio.timeout(None) as limit:
            yield
    finally:
        due.cancel()


@contextlib.contextmanager
def watching() -> Iterator[int]:
    """Run a watcher (yields its pid) during the block. `ran_s` uses it, in children too."""
    with tempfile.TemporaryDirectory(prefix="fairlead-standstill-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, folder], stdin=subprocess.PIPE, start_new_session=True
        )
        os.environ[FOLDER] = folder
        try:
            yield process.pid
        finally:
            del os.environ[FOLDER]
            assert process.stdin is not None
            process.stdin.close()  # it ends with us, whatever ends us
            process.wait(timeout=60.0)


def _wait_for(folder: Path, moment_s: float) -> None:
    """Return once the watcher can have nothing to say of the time before the moment that it has not said."""
    deadline_s = time.monotonic() + KNOWN_WITHIN_S
    while not (alive := _alive(folder)) or min(alive) < moment_s - NAP_S - LEAST_S:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"nobody has looked for standstills since {min(alive, default=0.0):.1f} s")
        time.sleep(NAP_S)


def _alive(folder: Path) -> list[float]:
    try:
        return [at for (at,) in _ALIVE.iter_unpack((folder / "alive").read_bytes())]
    except FileNotFoundError:  # it has just been started
        return []


def _read(path: Path) -> list[Span]:
    raw = path.read_bytes()
    usable_bytes = len(raw) - len(raw) % _SPAN.size
    return [(begin_s, end_s) for begin_s, end_s in _SPAN.iter_unpack(raw[:usable_bytes])]


# ---- the process


def _watch(core: int, folder: Path, alive: mmap.mmap, slot: int) -> None:
    """Watch until the process ends."""
    kind = AHEAD if _alone_on(core) else IN_TURN
    with (folder / f"{kind}-{core}").open("ab", buffering=0) as spans:
        while True:
            due_s = time.monotonic() + NAP_S
            time.sleep(NAP_S)
            now_s = time.monotonic()
            if now_s - due_s > LEAST_S:
                spans.write(_SPAN.pack(due_s, now_s))
            _ALIVE.pack_into(alive, slot * _ALIVE.size, now_s)


def _alone_on(core: int) -> bool:
    """Pin this thread to the core with priority if the system allows it. Return whether it has priority."""
    try:
        os.sched_setaffinity(0, {core})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except (AttributeError, OSError):  # no Linux; or no right to
        return False
    return True


def _main(folder: Path) -> None:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    file = folder / "alive"
    file.write_bytes(bytes(_ALIVE.size * len(cores)))
    with file.open("r+b") as opened:
        alive = mmap.mmap(opened.fileno(), 0)
    for slot, core in enumerate(cores):
        threading.Thread(target=_watch, args=(core, folder, alive, slot), daemon=True).start()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
