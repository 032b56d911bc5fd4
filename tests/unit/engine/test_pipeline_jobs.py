"""Calls inside of a job: which waits are spent there, and which are the job's (C7)."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from fairlead.engine.handler import JobContext, current_job
from fairlead.errors import CallFailed, DeadlineTooShort
from tests.unit.engine.test_pipeline import GET, World, answer


async def test_in_a_job_a_long_wait_is_the_jobs() -> None:
    job: Any = SimpleNamespace(attempt=1, job_id=UUID(int=9))
    for left_s, error in ((60.0, CallFailed), (10.0, DeadlineTooShort)):
        world = World([answer(429, retry_after="5")])
        running = current_job.set(JobContext(job, lambda left_s=left_s: left_s))  # type: ignore[misc]
        try:
            with pytest.raises(error) as raised:
                await world.call(GET)
        finally:
            current_job.reset(running)
    assert raised.value.retry_after_s is None, "it would be run again at once, and without end"


@pytest.mark.parametrize(("inline_wait_s", "sends"), [(0.5, 1), (20.0, 2)])
async def test_how_long_a_wait_is_spent_in_a_job_is_a_setting(inline_wait_s: float, sends: int) -> None:
    """K2: of the connection; the gate is told the same."""
    world = World([answer(429, retry_after="1"), answer(200)])
    world.settings = {"inline_wait_s": inline_wait_s}
    job: Any = SimpleNamespace(attempt=1, job_id=UUID(int=9))
    running = current_job.set(JobContext(job, lambda: 60.0))
    try:
        with suppress(CallFailed):
            await world.call(GET)
    finally:
        current_job.reset(running)
    assert len(world.sent) == sends
    assert {wish.wait_s for wish in world.wishes} == {inline_wait_s}
