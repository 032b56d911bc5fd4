"""How `gate status` tells of a line."""

from __future__ import annotations

from fairlead.cli.gate import queue_record
from fairlead.engine.ports import GateView, WaiterView


def waiter(priority_class: int, waits_s: float) -> WaiterView:
    return WaiterView(1, "p1", "acme", "", priority_class, waits_s, 1.0)


def test_the_line_by_class() -> None:
    waiters = (waiter(2, 9.0), waiter(1, 0.5), waiter(2, 1.0), waiter(2, 4.0), waiter(2, 2.0))
    view = GateView(None, 1, (), waiters, (), ())
    assert queue_record(view) == [
        {"class": 1, "waiting": 1, "p50_s": 0.5, "longest_s": 0.5},
        {"class": 2, "waiting": 4, "p50_s": 2.0, "longest_s": 9.0},
    ]
    assert queue_record(GateView(None, None, (), (), (), ())) == []
