"""Hands each event to whoever subscribed: logs, metrics, live views (D12).

Emitting costs the calls of the subscribers and nothing else: it never raises and never waits. A subscriber
that fails is counted and told once; the others, and the engine, go on.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping

from fairlead.events import Emit, Event

_log = logging.getLogger("fairlead.assembly.event_bus")


class EventBus:
    """One process's events. All of it is for the event loop's thread."""

    def __init__(self) -> None:
        self._subscribers: tuple[Emit, ...] = ()
        self._counts: Counter[str] = Counter()
        self._told: set[Emit] = set()
        self.failures = 0
        """Calls of subscribers that raised."""

    def emit(self, event: Event) -> None:
        """Count *event* and hand it to all subscribers, in the order they came."""
        self._counts[event.name] += 1
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:  # noqa: BLE001 (telemetry must not fail the work it watches)
                self._failed(subscriber, event)

    def subscribe(self, callback: Emit) -> Callable[[], None]:
        """Call *callback* with each event from now on; the function given back ends that.

        It must return at once: hand work on to a queue or a task.
        """
        self._subscribers = (*self._subscribers, callback)

        def unsubscribe() -> None:
            self._subscribers = tuple(kept for kept in self._subscribers if kept is not callback)

        return unsubscribe

    @property
    def counts(self) -> Mapping[str, int]:
        """Events so far by name."""
        return dict(self._counts)

    def _failed(self, subscriber: Emit, event: Event) -> None:
        self.failures += 1
        if subscriber not in self._told:
            self._told.add(subscriber)
            _log.exception("a subscriber failed at %s; only its first failure is logged", event.name)
