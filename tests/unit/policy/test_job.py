"""Priorities, labels, outcomes, the time budget, and the checks a job passes at the door."""

from __future__ import annotations

import errno
import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fairlead import errors
from fairlead.policy.calls.classify.verdict import LimitScope, Result, Step, Verdict
from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.job import (
    LONGEST_DELAY_S,
    MOST_WAITS,
    Cancel,
    Discard,
    Priority,
    RequireReauth,
    Retry,
    Snooze,
    UniqueWhile,
    budget_snooze,
    check_new_job,
    job_label,
    outcome_of_exception,
    parse_priority,
)
from fairlead.policy.jobs.states import JobState

# ---- priorities and labels ---------------------------------------------------------------------


@pytest.mark.parametrize("priority", Priority)
def test_priorities_by_name_and_by_level(priority: Priority) -> None:
    for word in (priority, priority.name.lower(), int(priority), str(int(priority))):
        assert parse_priority(word) is priority


def test_the_four_levels() -> None:
    assert {priority.name.lower(): int(priority) for priority in Priority} == {
        "critical": 0,
        "urgent": 1,
        "normal": 2,
        "low": 3,
    }


@pytest.mark.parametrize(
    "value", ["", "Urgent", "high", "4", "-1", " 1", "1\n", "\u0661", 4, -1, True, 1.5, None, "x" * 10**6]
)
def test_an_unknown_priority_is_refused(value: object) -> None:
    with pytest.raises(errors.InvalidInputError, match=r"is no priority.* hint: use critical") as caught:
        parse_priority(value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("state", "due", "attempt", "label"),
    [
        (JobState.AVAILABLE, True, 0, "available"),
        (JobState.AVAILABLE, True, 3, "available"),
        (JobState.AVAILABLE, False, 0, "scheduled"),
        (JobState.AVAILABLE, False, 1, "retryable"),
        (JobState.RUNNING, False, 1, "running"),
        (JobState.DISCARDED, False, 4, "discarded"),
    ],
)
def test_labels(state: JobState, due: bool, attempt: int, label: str) -> None:
    assert job_label(state, due=due, attempt=attempt) == label


# ---- outcomes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Cancel, Discard, RequireReauth])
@pytest.mark.parametrize("reason", ["", "  ", "\n", None, 5])
def test_an_end_without_a_reason_is_refused(outcome: type[Cancel], reason: str) -> None:
    with pytest.raises(errors.InvalidInputError, match="without a reason"):
        outcome(reason)


@pytest.mark.parametrize("delay_s", [-1, -1e-9, math.nan, math.inf, LONGEST_DELAY_S + 1, "5", None])
def test_an_impossible_snooze_is_refused(delay_s: float) -> None:
    with pytest.raises(errors.InvalidInputError, match=r"is no delay for snooze.* hint:"):
        Snooze(delay_s)


def test_a_refusal_that_names_a_time_is_a_wait_not_a_failure() -> None:
    for cls in (errors.RateLimitedError, errors.RefreshInProgressError, errors.EndpointUnavailableError):
        outcome = outcome_of_exception(cls("wait", tenant="acme", retry_after_s=20), draw=0.5)
        assert isinstance(outcome, Snooze)
        assert outcome.delay_s == pytest.approx(21)
        assert "tenant='acme'" in outcome.reason
    assert outcome_of_exception(errors.RateLimitedError("w", retry_after_s=20), draw=0) == Snooze(20, "w")


@pytest.mark.parametrize("retry_after_s", [1e12, -5.0])
def test_a_wait_keeps_its_bounds(retry_after_s: float) -> None:
    outcome = outcome_of_exception(errors.RateLimitedError("wait", retry_after_s=retry_after_s), draw=0.99)
    assert isinstance(outcome, Snooze)
    assert 0 <= outcome.delay_s <= LONGEST_DELAY_S


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (errors.RateLimitedError("wait"), Category.TRANSIENT_RATE_LIMIT),
        (errors.RateLimitedError("wait", retry_after_s=math.nan), Category.TRANSIENT_RATE_LIMIT),
        (errors.NotSentError("no route"), Category.TRANSIENT_NETWORK),
        (errors.TransientFailureError("503", retry_after_s=5), Category.TRANSIENT_SERVER),
        (ValueError("bug"), Category.HANDLER_ERROR),
    ],
    ids=repr,
)
def test_everything_else_is_a_failure(error: Exception, category: Category) -> None:
    outcome = outcome_of_exception(error, draw=0)
    assert isinstance(outcome, Retry)
    assert outcome.failure.category is category


def limited(scope: LimitScope | None = None, *, refused: bool = True, **more: Any) -> errors.CallFailedError:
    """A call that was sent and refused for a limit of the vendor's."""
    rate = Category.TRANSIENT_RATE_LIMIT
    verdict = Verdict(
        Result.FAILED, "429", Step.STATUS, "w", rate, scope=scope, refused_before_acting=refused
    )
    fields: dict[str, Any] = {
        "category": rate,
        "retry_after_s": 7.0,
        "verdict": verdict,
        "reason": "http_429",
    }
    fields["may_have_acted"] = not refused
    return errors.CallFailedError("status 429", **{**fields, **more})


def test_rate_limit_of_a_vendor_snoozes_in_place_and_burns_no_attempt() -> None:
    wait = outcome_of_exception(limited(), draw=0.0)
    assert isinstance(wait, Snooze)
    assert (wait.delay_s, wait.in_place, wait.counted) == (7.0, True, True)
    day = outcome_of_exception(limited(LimitScope.DAY, retry_after_s=40_000.0), draw=0.5)
    assert isinstance(day, Snooze)
    assert day.delay_s == 40_000.0, "never less than it asked for"
    for scope in (LimitScope.ENDPOINT, LimitScope.OBJECT):
        outcome = outcome_of_exception(limited(scope), draw=0.5)
        assert isinstance(outcome, Snooze)
        assert not outcome.in_place, "the rest of the connection goes on"


def test_waits_for_a_vendors_limit_grow_and_end() -> None:
    waits = [outcome_of_exception(limited(retry_after_s=1.0), draw=0.0, waits=n) for n in (0, 3, 30)]
    assert [wait.delay_s for wait in waits if isinstance(wait, Snooze)] == [2.5, 20.0, 30.0]
    assert isinstance(outcome_of_exception(limited(), draw=0.0, waits=MOST_WAITS - 1), Snooze)
    assert isinstance(outcome_of_exception(limited(), draw=0.0, waits=MOST_WAITS), Retry)


@pytest.mark.parametrize(
    "error",
    [
        limited(refused=False),
        limited(may_have_acted=True),
        limited(retry_after_s=None),
        limited(category=Category.TRANSIENT_SERVER),
        limited(verdict=None),
    ],
    ids=["may have acted", "an earlier attempt may have", "no time", "no limit", "not judged"],
)
def test_error_without_a_rate_limit_is_a_failure(error: errors.CallFailedError) -> None:
    assert isinstance(outcome_of_exception(error, draw=0.0), Retry)


@pytest.mark.parametrize("kind", ["descriptors", "resources", "resolver", "proxy", "pool"])
def test_fault_of_this_process_is_a_wait_and_spends_no_attempt(kind: str) -> None:
    """Also where a TaskGroup of the handler raises it."""
    unsent = errors.NotSentError("the request never left", reason=kind)
    for error in (unsent, ExceptionGroup("", [unsent, ExceptionGroup("", [unsent])])):
        wait = outcome_of_exception(error, draw=0.0)
        assert isinstance(wait, Snooze)
        assert (wait.delay_s, wait.counted) == (1.0, True)
        assert isinstance(outcome_of_exception(error, draw=0.0, waits=MOST_WAITS), Retry), "it has a bound"
    assert isinstance(outcome_of_exception(ExceptionGroup("", [unsent, KeyError()]), draw=0.0), Retry)
    no_connection = errors.DependencyUnavailableError("the database is not available", reason=kind)
    assert isinstance(outcome_of_exception(no_connection, draw=0.0), Snooze)
    elsewhere = errors.NotSentError("the request never left", reason="connect")
    assert isinstance(outcome_of_exception(elsewhere, draw=0.0), Retry)


def without_descriptors(number: int = errno.EMFILE) -> OSError:
    return OSError(number, "Too many open files")


def raised_from(error: BaseException, cause: BaseException, *, explicit: bool = True) -> Exception:
    """Return *error* as raised because of *cause*, or while that was handled."""
    try:
        try:
            raise cause
        except BaseException as caught:
            if explicit:
                raise error from caught
            raise error  # noqa: B904
    except Exception as chained:
        return chained


@pytest.mark.parametrize(
    "error",
    [
        without_descriptors(),
        without_descriptors(errno.ENFILE),
        raised_from(RuntimeError("all connection attempts failed"), without_descriptors()),
        raised_from(RuntimeError("max retries exceeded"), without_descriptors(), explicit=False),
        ExceptionGroup("", [without_descriptors(), raised_from(KeyError(), without_descriptors())]),
    ],
    ids=["of the process", "of the system", "as a cause", "as a context", "in a group"],
)
def test_handler_that_finds_no_descriptor_waits_and_spends_no_attempt(error: Exception) -> None:
    wait = outcome_of_exception(error, draw=0.0)
    assert isinstance(wait, Snooze)
    assert (wait.delay_s, wait.counted) == (1.0, True)
    assert isinstance(outcome_of_exception(error, draw=0.0, waits=MOST_WAITS), Retry)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
        OSError(errno.ENOSPC, "No space left on device"),
        raised_from(
            errors.CallFailedError("no response", may_have_acted=True),
            without_descriptors(),
        ),
        raised_from(
            RuntimeError("the order was not sent"),
            raised_from(
                errors.CallFailedError("no response", may_have_acted=True),
                without_descriptors(),
            ),
        ),
    ],
    ids=["a refused connection", "a full disk", "a call that may have acted", "and as a cause"],
)
def test_other_errors_of_a_handler_spend_an_attempt(error: Exception) -> None:
    assert isinstance(outcome_of_exception(error, draw=0.0), Retry)


# ---- the time budget (Q5) ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("remaining_s", "timeout_s", "snoozed"),
    [
        (60, 60, False),
        (15, 60, False),
        (14.9, 60, True),
        (14.9, None, True),
        (0, 60, True),
        (-3, 60, True),
        (14.9, 90, True),
        (10, 10, False),  # a short job has its whole time: it must not put itself off for ever
        (2.5, 10, False),
        (2.4, 10, True),
        (None, None, False),
        (None, 60, False),
    ],
)
def test_too_little_time_at_the_start_means_back_in_30_s(
    remaining_s: float | None, timeout_s: float | None, snoozed: bool
) -> None:
    outcome = budget_snooze(remaining_s, timeout_s)
    assert (outcome is not None) == snoozed
    if outcome is not None:
        assert outcome.delay_s == 30
        assert "left at its start" in outcome.reason


@pytest.mark.parametrize("timeout_s", [0.01, 1, 14, 15, 60, 90, 3600])
def test_a_job_with_its_whole_time_always_runs(timeout_s: float) -> None:
    assert budget_snooze(timeout_s, timeout_s) is None


# ---- at the door -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fields:
    kind: str = "token.refresh"
    tenant_id: str = "Ácme / Zürich"
    queue: str = "default"
    provider: str | None = "mercadolibre"
    group_key: str = "conn:1"
    priority: int = 2
    delay_s: float = 0.0
    args: dict[str, object] = field(default_factory=lambda: {"connection": "x"})
    unique_key: str | None = None
    unique_for_s: float | None = None
    unique_while: UniqueWhile = "follow_up"
    expires_in_s: float | None = None
    tags: tuple[str, ...] = ()


def test_an_acceptable_job_gives_the_text_of_its_args() -> None:
    job = Fields(unique_key="k", unique_for_s=60, expires_in_s=61, delay_s=60, tags=("a",) * 16, group_key="")
    assert check_new_job(job) == '{"connection":"x"}'
    assert check_new_job(replace(job, provider=None, args={})) == "{}"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"tenant_id": ""}, "is no tenant id"),
        ({"kind": "Token Refresh"}, "is no name for a kind"),
        ({"kind": "a\n"}, "is no name for a kind"),
        ({"queue": ""}, "is no name for a queue"),
        ({"provider": "a/b"}, "is no name for a provider"),
        ({"priority": 4}, "4 is no priority"),
        ({"delay_s": -1}, "is no delay for delay_s"),
        ({"delay_s": math.nan}, "is no delay for delay_s"),
        ({"expires_in_s": -1}, "is no delay for expires_in_s"),
        ({"expires_in_s": 5, "delay_s": 5}, "would expire in 5 s and is due in 5 s"),
        ({"unique_key": ""}, "is no unique key: it is empty"),
        ({"unique_key": "k" * 201}, "is no unique key"),
        ({"unique_key": "a\0"}, "is no unique key"),
        ({"unique_for_s": 5}, "unique_for_s without a unique_key"),
        ({"unique_while": "open"}, "unique_while without a unique_key"),
        ({"unique_key": "k", "unique_while": "wait"}, "did you mean waiting?"),
        ({"unique_key": "k", "unique_while": "followup"}, "did you mean follow_up?"),
        ({"unique_key": "k", "unique_while": None}, "use follow_up, waiting or open"),
        ({"unique_key": "k", "unique_for_s": math.inf}, "is no delay for unique_for_s"),
        ({"group_key": "g" * 401}, "is no group key"),
        ({"tags": ("a",) * 17}, "17 tags are too many"),
        ({"tags": ("",)}, "is no tag"),
        ({"tags": ("t" * 65,)}, "is no tag"),
        ({"args": {"a": math.nan}}, "args.a is nan"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_unacceptable_job_is_refused_with_a_way_out(change: dict[str, object], expected: str) -> None:
    with pytest.raises(errors.InvalidInputError) as caught:
        check_new_job(replace(Fields(), **change))  # type: ignore[arg-type]
    assert expected in str(caught.value)
    assert " hint: " in str(caught.value)
    if "tenant_id" not in change and "priority" not in change:
        assert caught.value.tenant == "Ácme / Zürich"
