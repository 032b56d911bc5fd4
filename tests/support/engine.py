"""What tests of the engine share: recorded events, jobs made by hand, draws that are no chance."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, TypeVar

from fairlead._core.ids import uuid7_from
from fairlead.engine.ports import Job, NewJob
from fairlead.events import Event
from fairlead.testing._kit.ids import CountedIds

E = TypeVar("E", bound=Event)

IDS = CountedIds(start=1_000_000)


class Recorder:
    """An ``emit`` that stores the events and lets a test wait for them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._told = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._told.set()

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one class so far."""
        return [event for event in self.events if isinstance(event, kind)]

    async def wait_for(self, kind: type[E], count: int = 1) -> E:
        """Wait for the *count*-th event of a class and return it."""
        while len(self.of(kind)) < count:
            self._told.clear()
            await self._told.wait()
        return self.of(kind)[count - 1]


def half() -> float:
    """Return a draw in the middle of its range."""
    return 0.5


def a_job(kind: str = "work", **fields: Any) -> Job:
    """Return a claimed job on its first attempt."""
    given: dict[str, Any] = {
        "job_id": IDS.uuid7(),
        "lease_id": IDS.lease_id(),
        "queue": "default",
        "kind": kind,
        "tenant_id": "acme",
        "provider": None,
        "group_key": "",
        "priority": 2,
        "attempt": 1,
        "crash_count": 0,
        "args": {},
        "streaks": {},
        "replay_of": None,
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "waited_s": 0.0,
    }
    return Job(**(given | fields))


def new_job(kind: str = "work", **fields: Any) -> NewJob:
    """Return a job to enqueue."""
    given: dict[str, Any] = {"job_id": IDS.uuid7(), "kind": kind, "tenant_id": "acme"}
    return NewJob(**(given | fields))


NOBODY = uuid7_from(0, 0)
"""An id that no row has."""
