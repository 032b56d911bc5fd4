"""The eight categories of failures, judged by type and never by message. Spec: T.

A message is written for people and changes with every release of a library; a type is a contract. fairlead's
own errors state their category. Any other exception of a handler that is not an error of a network is an
error of the handler: the job is retried a few times, and then stored with the traceback for a person.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from fairlead.errors import (
    CallFailedError,
    FailedError,
    FairleadError,
    NotSentError,
    RefusedError,
    SetupError,
    SlotLostError,
    UsageError,
)
from fairlead.policy.failures.driver_errors import is_network_error
from fairlead.policy.reasons import call_reasons, job_reasons
from fairlead.policy.text.safe import safe_text


class Category(StrEnum):
    """Why a job failed, and with it what may be done about it."""

    TRANSIENT_NETWORK = "transient_network"
    TRANSIENT_RATE_LIMIT = "transient_rate_limit"
    TRANSIENT_SERVER = "transient_server"
    HANDLER_ERROR = "handler_error"
    PERMANENT_AUTH = "permanent_auth"
    PERMANENT_CONFIG = "permanent_config"
    PERMANENT_PERMISSION = "permanent_permission"
    PERMANENT_REQUEST = "permanent_request"

    @property
    def transient(self) -> bool:
        """True where trying again may help by itself."""
        return self in TRANSIENT


TRANSIENT = frozenset({Category.TRANSIENT_NETWORK, Category.TRANSIENT_RATE_LIMIT, Category.TRANSIENT_SERVER})


RETRIED = TRANSIENT | {Category.HANDLER_ERROR}
"""What is tried again by default. Of their dead letters only transient ones are replayed by themselves."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, reduced to what a decision needs. Texts are safe to store and hold no secret."""

    category: Category
    code: str
    """Stable word for this kind of failure, such as ``rate_limited``."""
    reason: str
    """What happened, for people; never empty."""
    hint_s: float | None = None
    """The wait the server asked for, in seconds."""
    daily_limit: bool = False
    """The hint is the reset of a known daily limit, so it may reach 24 h."""
    timed_out_after_s: float | None = None
    """How long the attempt ran before our own timeout ended it; None: it was not a timeout."""
    unclassified: bool = False
    """No rule knew this error: raises the ``unclassified`` counter."""
    traceback: str | None = None
    """Of an error of the handler; without values of variables."""
    at: str | None = None
    """File, line and function where the handler raised it."""

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ValueError(f"failure {self.code!r} has no reason hint: say what happened, in words")


# An OSError of the network has many faces (resolver errors are a class of their own in every C library);
# one of the local machine has these.
_LOCAL_OS_ERRORS = (
    BlockingIOError,
    ChildProcessError,
    FileExistsError,
    FileNotFoundError,
    InterruptedError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    ProcessLookupError,
)
_LOCAL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE})

# First match wins, so the special stands before the general.
_NETWORK_ERRORS: tuple[tuple[type[OSError], str], ...] = (
    (TimeoutError, call_reasons.TIMEOUT.code),
    (ConnectionRefusedError, call_reasons.CONNECTION_REFUSED.code),
    (ConnectionResetError, call_reasons.CONNECTION_RESET.code),
    (ConnectionError, call_reasons.CONNECTION_LOST.code),
)

# Where one of our errors names no category, its family does.
_FAMILIES: tuple[tuple[type[FairleadError], Category], ...] = (
    (RefusedError, Category.TRANSIENT_NETWORK),
    (FailedError, Category.TRANSIENT_SERVER),
    (UsageError, Category.PERMANENT_REQUEST),
    (SetupError, Category.PERMANENT_CONFIG),
)

_WORD = re.compile(r"[a-z_]{1,32}")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CODE = re.compile(r"[a-z0-9_]+")

# Of several failures at once the most final decides: what cannot heal must not be retried for the rest.
_GRAVITY = (
    Category.TRANSIENT_NETWORK,
    Category.TRANSIENT_SERVER,
    Category.TRANSIENT_RATE_LIMIT,
    Category.HANDLER_ERROR,
    Category.PERMANENT_REQUEST,
    Category.PERMANENT_PERMISSION,
    Category.PERMANENT_CONFIG,
    Category.PERMANENT_AUTH,
)


def classify_exception(error: Exception, transient: tuple[type[Exception], ...] = ()) -> Failure:
    """Return the failure behind *error* by its type; never raise.

    An ExceptionGroup (a handler's TaskGroup) is judged by its gravest member. An exception that the handler
    declared as *transient* is retried like an error of the network.
    """
    if isinstance(error, ExceptionGroup):
        error = max(  # texts are made of one alone: of 10,000 that takes seconds
            _leaves(error), key=lambda leaf: _gravity(_classify_one(leaf, transient, "one of several"))
        )
    return _classify_one(error, transient, safe_text(error))


def job_timeout(ran_s: float, timeout_s: float) -> Failure:
    """Return the failure of an attempt that its timeout ended after *ran_s* seconds."""
    reason = f"the attempt ran {ran_s:.1f} s and its timeout is {timeout_s:g} s"
    return Failure(Category.TRANSIENT_NETWORK, job_reasons.JOB_TIMEOUT.code, reason, timed_out_after_s=ran_s)


def _classify_one(error: Exception, transient: tuple[type[Exception], ...], reason: str) -> Failure:
    if isinstance(error, FairleadError):
        return _classify_ours(error, reason)
    for kind, code in _NETWORK_ERRORS:
        if isinstance(error, kind):
            return Failure(Category.TRANSIENT_NETWORK, code, reason)
    if is_network_error(error) or (isinstance(error, OSError) and not _is_local(error)):
        return Failure(Category.TRANSIENT_NETWORK, call_reasons.NETWORK.code, reason)
    if isinstance(error, OSError):  # a local fault, such as a full disk: retried, and counted as unclassified
        return Failure(Category.TRANSIENT_NETWORK, job_reasons.UNCLASSIFIED.code, reason, unclassified=True)
    category = Category.TRANSIENT_NETWORK if isinstance(error, transient) else Category.HANDLER_ERROR
    return Failure(category, code_of(error), reason)


def code_of(error: BaseException) -> str:
    """Return the code of a handler's exception: the name of its class.

    >>> code_of(ZeroDivisionError())
    'zero_division_error'
    """
    words = _WORDS.sub("_", type(error).__name__).strip("_").lower()
    return words[:64] if _CODE.fullmatch(words) else job_reasons.HANDLER_ERROR.code


def _classify_ours(error: FairleadError, reason: str) -> Failure:
    code, hint_s = error.code, error.retry_after_s
    if isinstance(error, CallFailedError):
        return _classify_call(error, reason)
    if isinstance(error, NotSentError) and _WORD.fullmatch(error.reason or ""):
        code = f"{code}_{error.reason}"  # apart from the code of what was sent and timed out, say
    if isinstance(error, SlotLostError) and not error.idempotent:
        code = call_reasons.MAY_HAVE_ACTED.code
    if error.category in set(Category):
        return Failure(Category(error.category), code, reason, hint_s=hint_s)
    for family, category in _FAMILIES:
        if isinstance(error, family):
            return Failure(category, code, reason, hint_s=hint_s)
    return Failure(Category.TRANSIENT_NETWORK, code, reason, hint_s=hint_s, unclassified=True)


def _classify_call(error: CallFailedError, reason: str) -> Failure:
    """Return the failure of a call, with the provider's code, because the kind of error is always the same."""
    category = Category(error.category) if error.category in set(Category) else Category.TRANSIENT_SERVER
    is_unsafe = error.may_have_acted and not error.idempotent and category.transient
    return Failure(
        category,
        call_reasons.MAY_HAVE_ACTED.code if is_unsafe else error.reason or error.code,
        reason,
        hint_s=error.retry_after_s,
        daily_limit=getattr(error.verdict, "daily", False) is True,
        unclassified=getattr(error.verdict, "unclassified", False) is True,
    )


def _is_local(error: OSError) -> bool:
    return isinstance(error, _LOCAL_OS_ERRORS) or error.errno in _LOCAL_ERRNOS


def _leaves(group: ExceptionGroup[Exception]) -> Iterator[Exception]:
    todo: list[Exception] = [group]
    while todo:
        error = todo.pop()
        if isinstance(error, ExceptionGroup):
            todo.extend(error.exceptions)
        else:
            yield error


def _gravity(failure: Failure) -> tuple[bool, int, bool, float]:
    rank = _GRAVITY.index(failure.category)
    return (
        failure.code == call_reasons.MAY_HAVE_ACTED.code,
        rank,
        not failure.unclassified,
        failure.hint_s or 0.0,
    )
