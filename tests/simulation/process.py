"""Processes of the simulated fleet: a callback knows whose it is, so a process is killed or frozen whole.

A callback carries its process in a ContextVar of its context. What has none belongs to the world, which never
dies: what a process has sent is on its way there, whatever becomes of the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Literal
from weakref import ref

from fairlead.engine.ports import ProcessIdentity

BOOT, NAMESPACE = "boot-1", "pid:[1]"


class ProcessKilled(BaseException):
    """Raised in a process that was just killed, to leave its code where it stands."""


class SimProcess:
    """One life of a process. *name* is its place in the fleet, *number* counts the lives of that place."""

    def __init__(self, name: str, host: str, number: int = 1) -> None:
        self.name = name
        self.host = host
        self.number = number
        self.label = f"{name}#{number}"
        pid = 100 * int(name.lstrip("abcdefghijklmnopqrstuvwxyz") or 0) + number
        self._identity = ProcessIdentity(host, f"{BOOT}-{host}", NAMESPACE, pid, str(number))
        self.state: Literal["running", "frozen", "dead"] = "running"
        self.held: list[asyncio.Handle] = []
        """Callbacks that were due while it was frozen."""
        self.tasks: list[ref[asyncio.Task[object]]] = []
        """All that it ever began, in that order."""
        self.remains: list[asyncio.Task[object]] = []
        """Tasks that it had when it died: kept until the seed ends, or their ``finally`` would run now."""
        self._on_death: list[Callable[[], None]] = []

    @property
    def dead(self) -> bool:
        """True once it was killed, or has ended."""
        return self.state == "dead"

    def context(self) -> Context:
        """A new context for code of this process."""
        context = Context()
        context.run(CURRENT.set, self)
        return context

    def identity(self) -> ProcessIdentity:
        """As the others of its host see it."""
        return self._identity

    def on_death(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have *told* called, in the world, when it dies; what is given back prevents it."""
        self._on_death.append(callback)
        return lambda: self._on_death.remove(callback) if callback in self._on_death else None

    def die(self) -> None:
        """Run nothing of it ever again. Those who wait for news of it are told."""
        self.state, self.held = "dead", []
        callbacks, self._on_death = self._on_death, []
        for tell in callbacks:
            Context().run(tell)


CURRENT: ContextVar[SimProcess | None] = ContextVar("fairlead_simulated_process", default=None)


def current() -> SimProcess | None:
    """Whose code runs now; None: the world's."""
    return CURRENT.get()


def of_context(context: Context) -> SimProcess | None:
    """Whose code runs in *context*."""
    return context.get(CURRENT)


async def never() -> None:
    """Where the code of a dead process waits: for nothing."""
    await asyncio.get_running_loop().create_future()
