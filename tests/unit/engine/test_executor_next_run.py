"""What a run leaves for the next one: what it saved, and how often the job has waited for its vendor."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.engine.jobs.executor import Executor
from fairlead.engine.jobs.handler import SAVED, Handler, JobContext
from fairlead.engine.ports import Discarded, Job, Outcome, Rescheduled
from fairlead.errors import CallFailedError, InvalidInputError
from fairlead.policy.calls.classify.verdict import Result, Step, Verdict
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.job import MOST_WAITS, RequireReauth, Snooze
from fairlead.testing._kit.clock import ManualClock
from fairlead.testing._kit.ids import CountedIds
from tests.support.engine import Recorder, a_job, half
from tests.support.runs import Run, raising, returning

RATE = Category.TRANSIENT_RATE_LIMIT


def refused() -> CallFailedError:
    """By a vendor, for a limit, before it acted."""
    verdict = Verdict(Result.FAILED, "429", Step.STATUS, "w", RATE, refused_before_acting=True)
    failed = CallFailedError("429", category=RATE, verdict=verdict, retry_after_s=5.0, reason="http_429")
    failed.may_have_acted = False
    return failed


async def outcome_of(run: Run, job: Job) -> Outcome:
    doer = Executor([Handler("work", run)], clock=ManualClock(), draw=half, ids=CountedIds(), emit=Recorder())
    return await doer.run(job)


# ---- waits for a vendor's limit --------------------------------------------------------------------


async def test_a_wait_for_a_vendors_limit_is_counted_beside_the_failures() -> None:
    job = a_job(streaks={"transient_server": 2, "waits": 4})
    outcome = await outcome_of(returning(Snooze(12, counted=True)), job)
    assert outcome == Rescheduled(job.job_id, job.lease_id, 12.0, streaks={"transient_server": 2, "waits": 5})
    plain = await outcome_of(returning(Snooze(12)), job)
    assert isinstance(plain, Rescheduled)
    assert not plain.streaks


async def test_a_vendor_that_always_refuses_for_a_limit_fails_its_job_in_the_end() -> None:
    waits = await outcome_of(raising(refused()), a_job(streaks={"waits": MOST_WAITS - 1}))
    assert isinstance(waits, Rescheduled)
    assert (waits.failure, waits.streaks) == (None, {"waits": MOST_WAITS})
    burns = await outcome_of(raising(refused()), a_job(streaks=dict(waits.streaks)))
    assert isinstance(burns, Rescheduled)
    assert burns.failure is not None
    assert (burns.failure.code, burns.streaks) == ("http_429", {**waits.streaks, str(RATE): 1})


@pytest.mark.parametrize(("waits", "comes_on"), [({"page": 7}, True), ({"page": 6}, False), ({}, False)])
async def test_the_waits_of_a_job_that_comes_on_are_counted_anew(
    waits: dict[str, int], comes_on: bool
) -> None:
    """A list of hours on a busy account is refused now and then; what is noted again is no progress."""
    job = a_job(args={SAVED: {"page": 6}}, streaks={"transient_server": 2, "waits": MOST_WAITS})

    async def run(context: JobContext) -> None:
        for name, value in waits.items():
            context.save(name, value)
        raise refused()

    outcome = await outcome_of(run, job)
    assert isinstance(outcome, Rescheduled)
    if comes_on:
        assert (outcome.failure, outcome.streaks) == (None, {"transient_server": 2, "waits": 1})
    else:
        assert outcome.failure is not None
        assert outcome.streaks == {"transient_server": 2, "waits": MOST_WAITS, str(RATE): 1}


async def test_a_run_that_comes_on_forgets_the_waits_before_however_it_ends() -> None:
    job = a_job(streaks={"transient_server": 2, "waits": 40})
    for end in (Snooze(5.0), ConnectionResetError()):

        async def run(context: JobContext, end: Snooze | Exception = end) -> Snooze:
            context.save("page", 7)
            if isinstance(end, Exception):
                raise end
            return end

        outcome = await outcome_of(run, job)
        assert isinstance(outcome, Rescheduled)
        assert (outcome.streaks["waits"], outcome.streaks["transient_server"]) == (0, 2)


# ---- what was saved --------------------------------------------------------------------------------


async def test_saved_state_reaches_the_next_run_after_any_outcome() -> None:
    async def saves(context: JobContext, end: Callable[[], object]) -> object:
        context.save("page", 7)
        context.save("more", {"a": 1})
        assert dict(context.saved) == {"page": 7, "more": {"a": 1}}
        return end()

    def fails() -> object:
        raise ConnectionResetError

    job = a_job(args={"of": "orders", SAVED: {"page": 6}})
    for end in (lambda: Snooze(5.0), fails, lambda: RequireReauth("revoked")):

        async def run(context: JobContext, end: Callable[[], object] = end) -> object:
            assert (dict(context.args), dict(context.saved)) == ({"of": "orders"}, {"page": 6})
            return await saves(context, end)

        outcome = await outcome_of(run, job)
        assert isinstance(outcome, Rescheduled | Discarded)
        assert outcome.args == {"of": "orders", SAVED: {"page": 7, "more": {"a": 1}}}
    untouched = await outcome_of(returning(Snooze(5.0)), job)
    assert isinstance(untouched, Rescheduled)
    assert untouched.args is None


async def test_unstorable_value_is_refused_by_save() -> None:
    context = JobContext(a_job(), lambda: 60.0)
    for value in (float("nan"), "x" * 70_000, object()):
        with pytest.raises(InvalidInputError):
            context.save("page", value)
    assert context._next_args is None
