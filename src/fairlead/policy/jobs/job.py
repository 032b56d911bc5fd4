"""Jobs as values: priorities, labels, the outcomes of a handler, and the checks of new jobs.

A handler returns one of the outcomes, or any other value, which is a result. What each outcome does to the job
stands in policy/jobs/states.py and docs/states.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum
from typing import Literal, Protocol, get_args

from fairlead.errors import (
    CallFailedError,
    DependencyUnavailableError,
    FairleadError,
    InvalidInputError,
    JobNotFinishedError,
    NotSentError,
    RefusedError,
)
from fairlead.policy.calls.blast_radius import LocalReach, of_call, of_error
from fairlead.policy.calls.classify.verdict import Verdict
from fairlead.policy.failures.backoff import checked_draw, jittered_s, nominal_delay_s
from fairlead.policy.failures.category import Category, Failure, classify_exception
from fairlead.policy.failures.process_health import is_own_fault, lacks_descriptors
from fairlead.policy.failures.retry import DEFAULT_RULES
from fairlead.policy.jobs.payload import encode_args
from fairlead.policy.jobs.states import JobState
from fairlead.policy.text.names import check_label, check_name, shown, trimmed_tenant
from fairlead.policy.text.number import number_of
from fairlead.policy.text.safe import safe_text

LONGEST_DELAY_S = 366 * 86_400.0
"""The furthest a job may be put off, and the longest it may live before it expires."""
UniqueWhile = Literal["follow_up", "waiting", "open"]
"""While a job of its unique key runs, a new one begins after it, may begin beside it, or is not stored."""
KeyState = Literal["none", "waiting", "running", "finished"]
"""The state of the job that has a unique key; ``none``: there is none."""
MAX_UNIQUE_KEY_BYTES = 200
MAX_GROUP_KEY_BYTES = 400
MAX_TAGS = 16
MAX_TAG_BYTES = 64

MOST_WAITS = 60
"""How often a job that makes no progress waits for its provider's limits. Further refusals are failures."""
WAITS = "waits"
"""The key of these waits in a job's streaks."""

OWN_FAULT_S, OWN_FAULT_MOST_S = 2.0, 60.0
"""The first and the longest wait of a job after a fault of its process; another process may take it then."""

BUDGET_S = 15.0
BUDGET_SHARE = 0.25
BUDGET_SNOOZE_S = 30.0


class Priority(IntEnum):
    """The urgency of a job; the lower value is claimed first."""

    CRITICAL = 0
    URGENT = 1
    NORMAL = 2
    LOW = 3


_PRIORITIES: dict[str | int, Priority] = {
    name: priority
    for priority in Priority
    for name in (priority.name.lower(), str(priority.value), priority.value)
}


def parse_priority(value: object) -> Priority:
    """Return the priority named by *value*: ``"urgent"``, ``1`` or ``"1"``.

    >>> parse_priority("low")
    <Priority.LOW: 3>

    Raises:
        InvalidInputError: It names none.
    """
    if isinstance(value, str | int) and not isinstance(value, bool) and value in _PRIORITIES:
        return _PRIORITIES[value]
    text = value if isinstance(value, int | float) else shown(value)
    hint = "use critical, urgent, normal or low, or its level 0 to 3"
    raise InvalidInputError(f"{text} is no priority", hint=hint)


def job_label(state: JobState, *, due: bool, attempt: int) -> str:
    """Return the state, or ``scheduled`` / ``retryable`` for an available job that is not yet due.

    Spec: R18.
    """
    if state is not JobState.AVAILABLE or due:
        return state.value
    return "retryable" if attempt > 0 else "scheduled"


# ---- outcomes of a handler ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Complete:
    """The job succeeded; *result* is stored with it as JSON."""

    result: object = None


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed; the failure's category decides whether and when there is another."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Snooze:
    """Run the job again after *delay_s* seconds without using up an attempt.

    Attributes:
        in_place: It keeps its place in its group, and no job of the group starts before it. Without a group only
            the job itself waits.
        counted: The wait counts towards ``MOST_WAITS``.
    """

    delay_s: float
    reason: str = "snoozed by its handler"
    in_place: bool = False
    counted: bool = False

    def __post_init__(self) -> None:
        check_delay("snooze", self.delay_s)


@dataclass(frozen=True, slots=True)
class Cancel:
    """The job is no longer wanted; it ends without a dead letter."""

    reason: str

    def __post_init__(self) -> None:
        _check_reason("cancel", self.reason)


@dataclass(frozen=True, slots=True)
class Discard:
    """The job cannot succeed; it ends as a dead letter of *category*, default permanent_request."""

    reason: str
    category: Category = Category.PERMANENT_REQUEST

    def __post_init__(self) -> None:
        _check_reason("discard", self.reason)


@dataclass(frozen=True, slots=True)
class RequireReauth:
    """The connection needs a new authorisation by the customer.

    If the grant of the job's connection is gone, the job waits for a new one, as after ReauthRequiredError. Else
    it ends as a dead letter of permanent_auth that starts the reauthorisation.
    """

    reason: str

    def __post_init__(self) -> None:
        _check_reason("needs-reauth", self.reason)


Outcome = Complete | Retry | Snooze | Cancel | Discard | RequireReauth


def outcome_of_exception(
    error: Exception,
    *,
    draw: float,
    waits: int = 0,
    transient: tuple[type[Exception], ...] = (),
) -> Retry | Snooze:
    """Return the outcome of an exception that left a handler.

    These are waits, which use up no attempt, and not failures:

    - A refusal by fairlead that names a time (cool-down, a refresh in progress, an open breaker): nothing was
      sent. The wait is spread by up to 10 %, unless the job has a reservation. The same holds for a result that
      another job does not have yet.
    - A vendor's refusal for a limit before it acted, up to *MOST_WAITS* times since the job last saved its
      progress: a vendor that always refuses is down.
    - A fault of this process, up to *MOST_WAITS* times. That includes a handler's own connections and files,
      when no file descriptor is left.

    Args:
        error: The exception.
        draw: A random number from 0 to 1.
        waits: How many counted waits the job has had since it last saved its progress.
        transient: The exceptions that its handler declared as transient.

    Spec: C7.
    """
    if waits < MOST_WAITS and _is_own_fault(error):
        nominal_s = nominal_delay_s(waits, base_s=OWN_FAULT_S, cap_s=OWN_FAULT_MOST_S)
        return Snooze(nominal_s * (1 + checked_draw(draw)) / 2, _wait_reason(error), counted=True)
    if isinstance(error, CallFailedError) and waits < MOST_WAITS:
        wait = _vendors_wait(error, waits, draw)
        if wait is not None:
            return wait
    if not isinstance(error, RefusedError | JobNotFinishedError):
        return Retry(classify_exception(error, transient))
    wait_s = error.retry_after_s if error.retryable else None
    if wait_s is None or not math.isfinite(wait_s):
        return Retry(classify_exception(error, transient))
    wait_s = min(max(wait_s, 0.0), LONGEST_DELAY_S / 2)
    if of_error(error).local is LocalReach.LIMIT:  # it has a reservation, or is the first of its group
        return Snooze(wait_s, _wait_reason(error), in_place=True)
    return Snooze(wait_s * (1 + checked_draw(draw) / 10), _wait_reason(error))


def _wait_reason(error: Exception) -> str:
    """Return why a job waits, without the hint, which is for callers of the API."""
    return safe_text(error.subject if isinstance(error, FairleadError) else error)


def _is_own_fault(error: Exception) -> bool:
    """Return whether *error* is a fault of this process, and the job may safely run again."""
    if isinstance(error, ExceptionGroup):  # of a handler's TaskGroup
        return all(map(_is_own_fault, error.exceptions))
    if isinstance(error, CallFailedError) and error.may_have_acted and not error.idempotent:
        return False
    kinds = CallFailedError | NotSentError | DependencyUnavailableError
    if isinstance(error, kinds):
        return is_own_fault(error.reason)
    return lacks_descriptors(error)  # of a connection or file that the handler opened itself


def _vendors_wait(error: CallFailedError, waits: int, draw: float) -> Snooze | None:
    """Return the wait after a provider's limit, or None if it is no such failure or may have acted.

    The wait is never shorter than the provider requested. Without a request it grows as between attempts. The
    group waits with its job, unless the limit is one of an endpoint or object.
    """
    verdict, requested_s = error.verdict, error.retry_after_s
    if error.category != Category.TRANSIENT_RATE_LIMIT or not isinstance(verdict, Verdict):
        return None
    if error.may_have_acted or requested_s is None or not math.isfinite(requested_s):
        return None
    rule = DEFAULT_RULES[Category.TRANSIENT_RATE_LIMIT]
    nominal_s = nominal_delay_s(waits, base_s=rule.base_s, cap_s=rule.cap_s)
    wait_s = min(max(requested_s, jittered_s(nominal_s, rule.jitter, draw)), LONGEST_DELAY_S / 2)
    return Snooze(
        wait_s, _wait_reason(error), in_place=of_call(verdict).local is LocalReach.LIMIT, counted=True
    )


def budget_snooze(remaining_s: float | None, timeout_s: float | None) -> Snooze | None:
    """Return the snooze of a job that a drain would cancel soon after its start, or None if it may run.

    Too little is under 15 s, but never more than a quarter of the job's own timeout, because a kind with a
    timeout of 10 s would never run otherwise.

    Args:
        remaining_s: Seconds until the worker's drain cancels running jobs. None: no drain is under way.
        timeout_s: The timeout of its kind. None: it has none.

    Spec: Q5.
    """
    if remaining_s is None:
        return None
    needed_s = BUDGET_S if timeout_s is None else min(BUDGET_S, timeout_s * BUDGET_SHARE)
    if remaining_s >= needed_s:
        return None
    left_s = max(remaining_s, 0.0)
    return Snooze(BUDGET_SNOOZE_S, f"{left_s:.1f} s were left at its start, {needed_s:g} s are needed")


# ---- checks of new jobs ------------------------------------------------------------------------


class JobFields(Protocol):
    """The fields of a new job that are checked here."""

    @property
    def kind(self) -> str: ...
    @property
    def tenant_id(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def provider(self) -> str | None: ...
    @property
    def group_key(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def delay_s(self) -> float: ...
    @property
    def args(self) -> Mapping[str, object]: ...
    @property
    def unique_key(self) -> str | None: ...
    @property
    def unique_for_s(self) -> float | None: ...
    @property
    def unique_while(self) -> UniqueWhile: ...
    @property
    def expires_in_s(self) -> float | None: ...
    @property
    def tags(self) -> tuple[str, ...]: ...


def check_new_job(job: JobFields) -> str:
    """Check every field of *job*, and return the JSON text of its args.

    Raises:
        InvalidInputError: A field is not valid.
    """
    check_job_fields(job)
    return encode_args(job.args, tenant=job.tenant_id)


def check_job_fields(job: JobFields) -> None:
    """Check the fields of *job*, but not its args.

    Raises:
        InvalidInputError: A field is not valid.
    """
    tenant = trimmed_tenant(job.tenant_id)
    check_name("kind", job.kind, tenant=tenant)
    check_name("queue", job.queue, tenant=tenant)
    if job.provider is not None:
        check_name("provider", job.provider, tenant=tenant)
    parse_priority(job.priority)
    _check_keys(job, tenant)
    _check_times(job, tenant)


def check_delay(noun: str, delay_s: object, *, tenant: str | None = None) -> float:
    """Return *delay_s* if it is a wait of 0 s to 366 days.

    Raises:
        InvalidInputError: It is not.
    """
    number = number_of(delay_s)
    if 0 <= number <= LONGEST_DELAY_S:  # NaN fails both comparisons
        return number
    text = delay_s if isinstance(delay_s, int | float) else shown(delay_s)
    hint = f"give seconds from 0 to {LONGEST_DELAY_S:.0f} (366 days)"
    raise InvalidInputError(f"{text} is no delay for {noun}", tenant=tenant, hint=hint)


def _check_keys(job: JobFields, tenant: str) -> None:
    if job.group_key:
        check_label("group key", job.group_key, MAX_GROUP_KEY_BYTES, tenant=tenant)
    if job.unique_key is not None:
        check_label("unique key", job.unique_key, MAX_UNIQUE_KEY_BYTES, tenant=tenant)
    if job.unique_while != "follow_up":
        _check_unique_while(job.unique_while, job.unique_key, tenant)
    if len(job.tags) > MAX_TAGS:
        hint = f"use at most {MAX_TAGS}"
        raise InvalidInputError(f"{len(job.tags)} tags are too many", tenant=tenant, hint=hint)
    for tag in job.tags:
        check_label("tag", tag, MAX_TAG_BYTES, tenant=tenant)


def _check_unique_while(value: object, unique_key: str | None, tenant: str) -> None:
    values = get_args(UniqueWhile)
    if value not in values:
        near = get_close_matches(value, values, n=1, cutoff=0.5) if isinstance(value, str) else []
        hint = f"did you mean {near[0]}?" if near else f"use {', '.join(values[:-1])} or {values[-1]}"
        raise InvalidInputError(f"{shown(value)} is no unique_while", tenant=tenant, hint=hint)
    if unique_key is None:
        message = "unique_while without a unique_key"
        raise InvalidInputError(message, tenant=tenant, hint="give both, or neither")


def _check_times(job: JobFields, tenant: str) -> None:
    check_delay("delay_s", job.delay_s, tenant=tenant)
    if job.unique_for_s is not None:
        check_delay("unique_for_s", job.unique_for_s, tenant=tenant)
        if job.unique_key is None:
            message = "unique_for_s without a unique_key"
            raise InvalidInputError(message, tenant=tenant, hint="give both, or the key alone")
    if job.expires_in_s is not None:
        check_delay("expires_in_s", job.expires_in_s, tenant=tenant)
        if job.expires_in_s <= job.delay_s:
            message = f"the job would expire in {job.expires_in_s:g} s and is due in {job.delay_s:g} s"
            raise InvalidInputError(message, tenant=tenant, hint="let expires_in_s be longer than delay_s")


def _check_reason(noun: str, reason: object) -> None:
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidInputError(
            f"a {noun} without a reason", hint="give the reason in one sentence; operators read it later"
        )
