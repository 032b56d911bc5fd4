"""What suites measure by the clock leaves out when the machine stood still (tests/support/standstill.py)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from tests.support import standstill
from tests.support.standstill import (
    FOLDER,
    Span,
    Stood,
    all_ran_s,
    both,
    either,
    passed,
    patience,
    ran_s,
    watching,
)

STOPPED_S = 0.3


@pytest.mark.parametrize(
    ("spans", "within"),
    [
        ([], 0.0),
        ([(0.0, 1.0)], 0.0),
        ([(1.0, 2.5)], 0.5),
        ([(2.5, 3.0)], 0.5),
        ([(3.5, 9.0)], 0.5),
        ([(0.0, 9.0)], 2.0),
        ([(2.1, 2.4), (3.0, 3.2)], 0.5),
        ([(2.1, 2.6), (2.4, 2.8)], 0.7),  # on two cores at once
        ([(2.1, 3.0), (2.4, 2.8)], 0.9),
    ],
)
def test_a_moment_of_several_spans_counts_once(spans: list[Span], within: float) -> None:
    for ordered in spans, spans[::-1]:
        assert Stood(either(ordered)).within_s(2.0, 4.0) == pytest.approx(within)


@pytest.mark.parametrize(
    ("first", "other", "common"),
    [
        ([(1.0, 2.0)], [], []),
        ([(1.0, 2.0)], [(2.0, 3.0)], []),
        ([(1.0, 3.0)], [(2.0, 4.0)], [(2.0, 3.0)]),
        ([(1.0, 9.0)], [(2.0, 3.0), (4.0, 5.0), (8.0, 10.0)], [(2.0, 3.0), (4.0, 5.0), (8.0, 9.0)]),
        ([(1.0, 2.0), (3.0, 4.0)], [(1.5, 3.5)], [(1.5, 2.0), (3.0, 3.5)]),
    ],
)
def test_common_standstills_of_two_cores(first: list[Span], other: list[Span], common: list[Span]) -> None:
    assert both(first, other) == both(other, first) == common


def test_where_nobody_watches_all_of_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER)
    assert ran_s(2.0, 4.5) == 2.5
    assert all_ran_s([]) == []


def test_a_watcher_that_was_late_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped in the machine's place."""
    monkeypatch.delenv(FOLDER)
    with watching() as pid:
        began_s = time.monotonic()
        ran_s(began_s)  # it has begun to look
        os.kill(pid, signal.SIGSTOP)
        stopped_s = time.monotonic()
        time.sleep(STOPPED_S)
        os.kill(pid, signal.SIGCONT)
        ended_s = time.monotonic()
        all_s, within, after_s = all_ran_s(
            [(began_s, ended_s), (stopped_s + 0.1, stopped_s + 0.2), (ended_s + 0.05, ended_s + 0.1)]
        )
        assert all_s <= ended_s - began_s - STOPPED_S + 2 * standstill.NAP_S
        assert within == 0.0
        assert after_s >= 0.0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert FOLDER not in os.environ


def test_a_watcher_that_is_gone_is_missed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(standstill, "KNOWN_WITHIN_S", 0.05)
    with pytest.raises(RuntimeError, match="nobody has looked"):
        ran_s(time.monotonic())


async def test_patience_lasts_for_as_long_as_the_machine_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    stood_s = 0.15
    began_s = time.monotonic()
    monkeypatch.setattr(standstill, "ran_s", lambda since_s: time.monotonic() - since_s - stood_s)
    async with patience(0.1):
        await asyncio.sleep(0.2)
    with pytest.raises(TimeoutError):
        async with patience(0.1):
            await asyncio.sleep(60.0)
    assert time.monotonic() - began_s >= 0.2 + 0.1 + stood_s


async def test_patience_is_over_with_its_block() -> None:
    async with patience(0.01):
        pass
    await asyncio.sleep(0.05)  # nobody is cancelled any more


async def test_passed_time_excludes_standstills(monkeypatch: pytest.MonkeyPatch) -> None:
    began_s, stood_s = time.monotonic(), 0.15
    monkeypatch.setattr(standstill, "ran_s", lambda since_s: time.monotonic() - since_s - stood_s)
    await passed(0.1)
    assert time.monotonic() - began_s >= 0.1 + stood_s


async def test_patience_ends_where_the_watcher_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(standstill, "KNOWN_WITHIN_S", 0.02)
    with pytest.raises(TimeoutError):
        async with patience(0.05):
            await asyncio.sleep(60.0)
