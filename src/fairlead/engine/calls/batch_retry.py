"""The wait before the failed items of a batch are sent again."""

from __future__ import annotations

import math

from fairlead._core.clock import Clock, Draw
from fairlead.engine.calls.call_state import CallConfig
from fairlead.engine.jobs.handler import current_job
from fairlead.policy.calls.classify.verdict import Verdict
from fairlead.policy.calls.deadline import buffer_s
from fairlead.policy.calls.next_step import MAX_RETRYING_S, Attempt, NextAction, decide_batch_retry


async def wait_for_items(
    config: CallConfig, verdict: Verdict, attempt: int, started_mono: float, *, clock: Clock, draw: Draw
) -> bool:
    """Wait until the failed items of a batch may be retried; return False if they must not be.

    Args:
        attempt: How often the batch was retried so far.
        started_mono: When the batch was started.
    """
    left_s, max_inline_wait_s = MAX_RETRYING_S + started_mono - clock.monotonic(), math.inf
    if (job := current_job.get()) is not None:
        left_s = min(left_s, job.remaining_s - buffer_s(job.timeout_s))
        max_inline_wait_s = config.settings.inline_wait_s
    decision = decide_batch_retry(
        Attempt(attempt, False, True, left_s, max_inline_wait_s),
        verdict,
        draw=draw(),
        factor=config.profile.backoff_factor,
    )
    if decision.action is NextAction.RETRY:
        await clock.sleep(decision.delay_s)
    return decision.action is NextAction.RETRY
