"""Handlers that are hostile, by malice or by accident: what they raise or answer is written (E08)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import Completed, Discarded, Outcome, Rescheduled
from fairlead.errors import RateLimitedError, ReauthRequiredError
from fairlead.policy.failures.backoff import Jitter
from fairlead.policy.failures.retry import DEFAULT_POLICY, RetryPolicy
from fairlead.policy.jobs.job import Complete, Retry, Snooze
from fairlead.testing._kit.clock import ManualClock
from fairlead.testing._kit.ids import CountedIds
from tests.support.engine import Recorder, a_job, half


async def outcome_of(
    run: Callable[[JobContext], Awaitable[object]], retry: RetryPolicy = DEFAULT_POLICY
) -> Outcome:
    handler = Handler("work", run, retry=retry)
    return await Executor([handler], clock=ManualClock(), draw=half, ids=CountedIds(), emit=Recorder()).run(
        a_job()
    )


async def answered(value: object, **more: Any) -> Outcome:
    async def run(context: JobContext) -> object:
        return value

    return await outcome_of(run, **more)


async def raised(error: BaseException) -> Outcome:
    async def run(context: JobContext) -> object:
        raise error

    return await outcome_of(run)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class MaskedError(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise RuntimeError("no class for you")


class LeavingError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class CancellingError(OSError):
    @property
    def errno(self) -> int:  # type: ignore[override]
        raise asyncio.CancelledError


class WrongFieldsError(RateLimitedError):
    def __init__(self) -> None:
        super().__init__("x")
        self.retry_after_s = "soon"  # type: ignore[assignment]


HOSTILE: dict[str, Callable[[], BaseException]] = {
    "unprintable": UnprintableError,
    "masked": MaskedError,
    "leaving": LeavingError,
    "cancelling": CancellingError,
    "wrong fields": WrongFieldsError,
    "huge": lambda: ValueError("x" * 10_000_000),
    "unstorable": lambda: ValueError("nul \0 and half \ud800"),
    "exit": lambda: SystemExit(3),
    "generator exit": GeneratorExit,
    "several": lambda: ExceptionGroup("several", [ValueError("a"), ReauthRequiredError("b")]),
    "several exits": lambda: BaseExceptionGroup("worse", [SystemExit(1)]),
    "recursion": RecursionError,
    "memory": MemoryError,
    "stop": StopAsyncIteration,
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_error_gets_past_the_executor(name: str) -> None:
    outcome = await raised(HOSTILE[name]())
    assert isinstance(outcome, Rescheduled | Discarded)
    assert outcome.failure is not None
    assert 0 < len(outcome.failure.reason.encode()) <= 4096
    assert "\0" not in outcome.failure.reason


@pytest.mark.parametrize("answer", [Retry("boom"), Retry(None), Complete({1: object()})])  # type: ignore[arg-type]
async def test_an_outcome_filled_with_nonsense_is_a_failure_or_a_result(answer: object) -> None:
    assert isinstance(await answered(answer), Rescheduled | Completed)


class Turncoat:
    """Says that it is a snooze as long as it is asked whether it is an outcome, and not when asked which."""

    def __init__(self) -> None:
        self._looks = iter((Snooze,) * 3)

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return next(self._looks, object)


class HollowComplete(Complete):
    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(3)


async def test_an_outcome_that_lies_is_a_failure() -> None:
    for lie in (Turncoat(), HollowComplete()):
        outcome = await answered(lie)
        assert isinstance(outcome, Rescheduled)
        assert outcome.failure is not None
        assert outcome.failure.code == "unclassified"


@pytest.mark.parametrize("delay_s", [float("nan"), float("inf"), -1.0, "soon", None])
async def test_a_snooze_of_no_length_is_a_failure(delay_s: object) -> None:
    """The store refuses such a delay, so it would be put off again and again, and burn no attempt."""
    snooze = Snooze(1.0)
    object.__setattr__(snooze, "delay_s", delay_s)
    outcome = await answered(snooze)
    assert isinstance(outcome, Rescheduled)
    assert outcome.failure is not None


async def test_a_nonsensical_outcome_is_retried_by_the_rules_of_its_kind() -> None:
    never = RetryPolicy.uniform(0, base_s=1.0, cap_s=1.0, jitter=Jitter.FULL)
    assert isinstance(await answered(HollowComplete(), retry=never), Discarded)
