"""Passes each event to its subscribers: logs, metrics, live views. Spec: D12.

Emitting calls the subscribers and does nothing else. It never raises and never waits. If a subscriber raises,
the failure is counted, its first one is logged, and the other subscribers are still called.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping

from fairlead.events import Emit, Event

_log = logging.getLogger("fairlead.assembly.event_bus")


class EventBus:
    """The event bus of one process. Use it only in the event loop's thread."""

    def __init__(self) -> None:
        self._subscribers: tuple[Emit, ...] = ()
        self._counts: Counter[str] = Counter()
        self._logged: set[Emit] = set()
        """The subscribers with a failure that was logged."""
        self.failures = 0
        """The number of calls of subscribers that raised."""

    def emit(self, event: Event) -> None:
        """Count *event* and call all subscribers with it, in the order in which they subscribed."""
        self._counts[event.name] += 1
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:  # noqa: BLE001 (telemetry must not fail the work it watches)
                self._failed(subscriber, event)

    def subscribe(self, callback: Emit) -> Callable[[], None]:
        """Call *callback* with each event from now on.

        It must return at once, so longer work belongs into a queue or a task.

        Returns:
            A function that ends the subscription.
        """
        self._subscribers = (*self._subscribers, callback)

        def unsubscribe() -> None:
            self._subscribers = tuple(other for other in self._subscribers if other is not callback)

        return unsubscribe

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of events so far, by name."""
        return dict(self._counts)

    def _failed(self, subscriber: Emit, event: Event) -> None:
        self.failures += 1
        if subscriber not in self._logged:
            self._logged.add(subscriber)
            _log.exception("a subscriber failed at %s; only its first failure is logged", event.name)
