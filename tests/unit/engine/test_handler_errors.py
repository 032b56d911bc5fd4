"""Errors of a handler: their category, their traceback, and who is told of them (T5)."""

from __future__ import annotations

import asyncio
import sys

import pytest

from fairlead._core.secret import Secret
from fairlead.engine.base.traces import MAX_BYTES, place_of, traceback_text
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import DeadLetterFilter
from fairlead.events import JobFinished, ServiceFailed
from fairlead.policy.failures.category import classify_exception
from tests.support.process import Fleet


async def test_a_key_error_in_a_handler_is_tried_again_and_kept_with_its_traceback_for_a_person(
    fleet: Fleet,
) -> None:
    reports: list[tuple[str, int]] = []

    async def breaks(context: JobContext) -> None:
        password = "hunter2-is-a-secret"
        raise KeyError(f"price of {len(password)}")

    def hook(error: Exception, context: JobContext) -> None:
        reports.append((type(error).__name__, context.attempt))
        raise RuntimeError("the hook is broken, too")

    (job,) = await fleet.enqueue()
    process = await fleet.start(Handler("work", breaks, on_error=hook))
    for _ in range(20):
        await fleet.advance(30)
    view = await fleet.view(job)
    assert (view.state, view.attempt, reports) == ("discarded", 4, [("KeyError", n) for n in (1, 2, 3, 4)])
    assert {line["category"] for line in view.failures} == {"handler_error"}
    *earlier, last = [line["details"] for line in view.failures]
    assert all("traceback" not in details for details in earlier)
    assert last["at"].startswith("engine/test_handler_errors.py:")
    assert last["at"].endswith(" in breaks")
    assert last["at"] in view.failures[-1]["reason"]
    assert "raise KeyError(" in last["traceback"]
    assert "hunter2" not in last["traceback"]
    assert "executor.py" not in last["traceback"]
    assert process.emit.of(JobFinished)[-1].traceback == last["traceback"]
    assert {event.service for event in process.emit.of(ServiceFailed)} == {"on_error"}
    (entry,) = await fleet.dead_letters.find(DeadLetterFilter(), limit=9)
    assert last["at"] in entry.reason, "lists show the reason"
    assert await fleet.dead_letters.due(9) == [], "nobody but a person replays it"


async def test_declared_transient_error_is_retried(fleet: Fleet) -> None:
    class VendorBusyError(Exception):
        pass

    async def is_refused(context: JobContext) -> None:
        raise VendorBusyError("later")

    (job,) = await fleet.enqueue()
    await fleet.start(Handler("work", is_refused, transient=(VendorBusyError,)))
    await fleet.advance(0.1)
    (line,) = (await fleet.view(job)).failures[:1]
    assert (line["category"], line["code"]) == ("transient_network", "vendor_busy_error")
    assert "traceback" not in line["details"]


async def test_a_handler_that_exits_is_kept_with_its_traceback(fleet: Fleet) -> None:
    async def exits(context: JobContext) -> None:
        sys.exit("no such shop")

    (job,) = await fleet.enqueue()
    await fleet.start(Handler("work", exits))
    await fleet.advance(0.1)
    (line,) = (await fleet.view(job)).failures[:1]
    assert (line["category"], "SystemExit: no such shop" in line["reason"]) == ("handler_error", True)
    assert line["details"]["at"].endswith(" in exits")
    assert "sys.exit(" in line["details"]["traceback"]


def test_a_traceback_is_masked_before_it_is_cut_and_keeps_its_end() -> None:
    secret = Secret("correct horse battery staple nine lives")
    for behind in range(MAX_BYTES - 60, MAX_BYTES, 7):
        try:
            raise ValueError(f"it said {secret.reveal()} {'é' * (behind // 2)} the end")
        except ValueError as error:
            text = traceback_text(error)
        assert "lives" not in text
        assert "nine" not in text
        assert text.endswith("the end")
        assert MAX_BYTES - 8 <= len(text.encode()) <= MAX_BYTES
    for behind in range(0, 60, 7):
        try:
            raise ValueError(f"{(secret.reveal() + ' ') * 1000} {'x' * behind} the end")
        except ValueError as error:
            text = traceback_text(error)
        assert "lives" not in text
        assert text.endswith("the end")


def test_a_group_of_thousands_is_kept_by_its_first_exception_and_judged_without_texts() -> None:
    formatted = 0

    class CountedError(Exception):
        def __str__(self) -> str:
            nonlocal formatted
            formatted += 1
            return "counted"

    try:
        raise ExceptionGroup("all of them", [CountedError() for _ in range(10_000)])
    except ExceptionGroup as error:
        text, failure = traceback_text(error), classify_exception(error)
    assert text.startswith("The first of more than 100 in one ExceptionGroup:")
    assert "CountedError: counted" in text
    assert failure.code == "counted_error"
    assert formatted < 10


async def test_the_place_of_a_group_is_where_its_member_was_raised() -> None:
    async def member() -> None:
        raise KeyError("price")

    with pytest.raises(ExceptionGroup) as several:
        async with asyncio.TaskGroup() as group:
            group.create_task(member())
    assert str(place_of(several.value)).endswith(" in member")
    with pytest.raises(ExceptionGroup) as by_hand:
        raise ExceptionGroup("made by hand", [KeyError("never raised")])
    assert "test_the_place_of_a_group" in str(place_of(by_hand.value))
