"""Counters: what one operation of a program costs, without a clock."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import asyncpg

ROUNDS = 4
Figures = dict[str, float]
Act = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class Counts:
    """What was counted since the last `reset`."""

    executor_jobs: int = 0
    wake_ups: int = 0
    statements: int = 0
    python_calls: int = 0
    c_calls: int = 0

    def reset(self) -> None:
        """Begin anew."""
        self.executor_jobs = self.wake_ups = self.statements = self.python_calls = self.c_calls = 0

    def profile(self, _frame: FrameType, event: str, _argument: object) -> None:
        """Count one event of `sys.setprofile`."""
        if event == "call":
            self.python_calls += 1
        elif event == "c_call":
            self.c_calls += 1


@contextmanager
def counted_work(counts: Counts) -> Iterator[None]:
    """Count executor jobs, wake-ups of the loop by other threads, and statements in *counts*."""
    wrapped: list[tuple[Any, str, str]] = [
        (ThreadPoolExecutor, "submit", "executor_jobs"),
        (asyncio.BaseEventLoop, "call_soon_threadsafe", "wake_ups"),
        (asyncpg.Connection, "fetch", "statements"),
        (asyncpg.Connection, "execute", "statements"),
    ]
    originals = [getattr(owner, name) for owner, name, _ in wrapped]

    def counting(inner: Callable[..., Any], label: str) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            setattr(counts, label, getattr(counts, label) + 1)
            return inner(*args, **kwargs)

        return count

    for (owner, name, counted), inner in zip(wrapped, originals, strict=True):
        setattr(owner, name, counting(inner, counted))
    try:
        yield
    finally:
        for (owner, name, _), inner in zip(wrapped, originals, strict=True):
            setattr(owner, name, inner)


async def least(names: tuple[str, ...], act: Act, operations: int, rounds: int, *, profiled: bool) -> Figures:
    """Return the least of each figure of *names* over the rounds, for one of the *operations* of *act*."""
    counts = Counts()
    samples: list[list[int]] = []
    for _ in range(rounds):
        gc.collect()
        counts.reset()
        if profiled:
            sys.setprofile(counts.profile)
            try:
                await act()
            finally:
                sys.setprofile(None)
        else:
            with counted_work(counts):
                await act()
        samples.append([getattr(counts, name) for name in names])
    return {name: min(sample[index] for sample in samples) / operations for index, name in enumerate(names)}


async def garbage(act: Act, operations: int) -> float:
    """Return how many objects each of the *operations* leaves that only the collector frees."""
    samples = []
    gc.disable()
    try:
        for _ in range(2):
            gc.collect()
            await act()
            await asyncio.sleep(0)  # closed transports let their connections go a turn later
            samples.append(gc.collect())
    finally:
        gc.enable()
    return min(samples) / operations


WORK = ("executor_jobs", "wake_ups", "statements")
CALLS = ("python_calls", "c_calls")


async def both(
    prefix: str, act: Act, operations: int, *, calls: bool = True, rounds: int = ROUNDS
) -> Figures:
    """Return the figures of work and of calls of *act*, after one round that warms up."""
    await act()
    counts = await least(WORK, act, operations, rounds, profiled=False)
    if calls:
        counts |= await least(CALLS, act, operations, rounds, profiled=True)
        counts["garbage"] = await garbage(act, operations)
    return {f"{prefix}.{name}": round(value, 3) for name, value in counts.items()}
