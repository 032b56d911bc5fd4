"""Events reach all subscribers; one that fails harms nobody."""

from __future__ import annotations

import logging

import pytest

from fairlead.assembly.event_bus import EventBus
from fairlead.events import Event, ScheduleFired, StoreUnreachable

TICK = ScheduleFired("token.scan", 0)
AWAY = StoreUnreachable("postgres", "gone")


def test_subscribers_hear_what_comes_after_them_in_order() -> None:
    bus, received = EventBus(), []
    bus.emit(AWAY)
    bus.subscribe(lambda event: received.append(("first", event)))
    bus.subscribe(lambda event: received.append(("second", event)))
    bus.emit(TICK)
    assert received == [("first", TICK), ("second", TICK)]


def test_events_are_counted_by_name() -> None:
    bus = EventBus()
    for event in (TICK, AWAY, TICK):
        bus.emit(event)
    assert bus.counts == {"schedule_fired": 2, "store_unreachable": 1}


def test_unsubscribing_ends_it_even_while_an_event_is_handed_out() -> None:
    bus, received = EventBus(), []

    def once(event: Event) -> None:
        received.append(event)
        leave()

    leave = bus.subscribe(once)
    bus.subscribe(received.append)
    bus.emit(TICK)
    bus.emit(AWAY)
    leave()
    assert received == [TICK, TICK, AWAY]


def test_failing_subscriber_is_counted_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    bus, received = EventBus(), []

    def fails(event: Event) -> None:
        raise ValueError("broken")

    bus.subscribe(fails)
    bus.subscribe(received.append)
    with caplog.at_level(logging.ERROR, "fairlead.assembly.event_bus"):
        bus.emit(TICK)
        bus.emit(TICK)
    assert received == [TICK, TICK]
    assert bus.failures == 2
    assert [record.getMessage() for record in caplog.records] == [
        "a subscriber failed at schedule_fired; only its first failure is logged"
    ]


def test_an_interrupt_passes() -> None:
    bus = EventBus()

    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    bus.subscribe(interrupted)
    with pytest.raises(KeyboardInterrupt):
        bus.emit(TICK)
