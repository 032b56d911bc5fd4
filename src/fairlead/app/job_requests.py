"""Requests for jobs: what a caller gives, completed by what the kind declares, and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol, TypedDict
from uuid import UUID

from fairlead.engine.jobs.handler import SAVED
from fairlead.engine.ports import NewJob
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.job import Priority, UniqueWhile, check_job_fields, parse_priority
from fairlead.policy.jobs.lane import connection_group, is_internal_kind
from fairlead.policy.jobs.payload import encode_args
from fairlead.policy.text.names import check_name, shown

MOST_JOBS = 10_000
MOST_BYTES = 32 * 1024 * 1024
"""Bounds of one `enqueue_many`, which is one statement: jobs, and bytes of their args together."""

GroupOf = Callable[[Mapping[str, Any]], str]
"""Names the group of a job by its args."""


class JobOptions(TypedDict, total=False):
    """Options of a job beside its kind, args and tenant. All are optional."""

    queue: str | None
    """Default: as the kind declares, else ``default``."""
    provider: str | None
    """The provider that it calls; default none."""
    account: str | None
    """Which of the tenant's accounts there; default ``default``."""
    group: str | None
    """What is paused with it after a 429; default: as the kind declares, else its account
    (``provider/account``), else none. "" is no group."""
    priority: str | int | None
    """``critical``, ``urgent``, ``normal``, ``low``, or 0 to 3; default: as declared, else normal."""
    delay_s: float
    """Not before so many seconds, 0 to 366 days; default 0."""
    unique_key: str | None
    """A job of this kind and tenant with this key that has not begun answers for this one: it is not stored,
    and you get the other one's id. Default none."""
    unique_for_s: float | None
    """The key holds for so many seconds, even if the job has begun or ended; default: until it begins."""
    unique_while: UniqueWhile
    """What happens while a job with this key runs. ``follow_up`` (default): this one is stored and begins
    once that run has ended. ``waiting``: this one is stored and may begin beside it. ``open``: the running
    job answers and this one is not stored, although that run may have read what you have changed since.
    (``while`` alone is a keyword of Python.)"""
    expires_in_s: float | None
    """Not begun within so many seconds it becomes a dead letter (``expired``); default never."""
    tags: Sequence[str]
    """Up to 16 words to find it by; default none."""


class Declared(Protocol):
    """The options that a kind declares for its jobs."""

    @property
    def queue(self) -> str: ...
    @property
    def priority(self) -> Priority: ...
    @property
    def group(self) -> str | GroupOf | None: ...
    def stored_args(self, args: Mapping[str, Any], *, tenant: str | None) -> dict[str, Any]: ...


@dataclass(slots=True)  # frozen, making one would cost three times as much
class JobRequest:
    """A job to be stored, as `enqueue_many` takes it; the fields are explained at `JobOptions`."""

    kind: str
    args: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    tenant: str
    queue: str | None = None
    provider: str | None = None
    account: str | None = None
    group: str | None = None
    priority: str | int | None = None
    delay_s: float = 0.0
    unique_key: str | None = None
    unique_for_s: float | None = None
    unique_while: UniqueWhile = "follow_up"
    expires_in_s: float | None = None
    tags: Sequence[str] = ()


def new_job(request: JobRequest, declared: Declared | None, job_id: UUID) -> tuple[NewJob, int]:
    """Return the job to store and the size of its args in bytes.

    Raises:
        InvalidInputError: A field is not valid.
    """
    if is_internal_kind(request.kind):
        hint = "choose another name: kinds that start with `token.`, `event.` or `dead_letter.` are reserved"
        raise InvalidInputError(
            f"kind {request.kind!r} is internal to fairlead", tenant=request.tenant, hint=hint
        )
    args = checked_args(request.args, tenant=request.tenant)
    if declared is not None:
        args = declared.stored_args(args, tenant=request.tenant)
    priority = request.priority
    if priority is None:
        priority = Priority.NORMAL if declared is None else declared.priority
    text = encode_args(args, tenant=request.tenant)
    job = NewJob(
        job_id=job_id,
        kind=request.kind,
        tenant_id=request.tenant,
        queue=request.queue if request.queue is not None else declared.queue if declared else "default",
        provider=request.provider,
        group_key=_group(request, declared, args),
        priority=int(parse_priority(priority)),
        delay_s=request.delay_s,
        args=args,
        unique_key=request.unique_key,
        unique_for_s=request.unique_for_s,
        unique_while=request.unique_while,
        expires_in_s=request.expires_in_s,
        tags=_tags(request),
        args_json=text,
    )
    check_job_fields(job)
    return job, len(text)


def new_jobs(
    requests: Iterable[JobRequest], declared: Callable[[str], Declared | None], make_id: Callable[[], UUID]
) -> Iterator[NewJob]:
    """Yield the jobs of *requests*.

    Raises:
        InvalidInputError: One is not valid, or they are too many for one call.
    """
    size = 0
    for number, request in enumerate(requests, 1):
        if not isinstance(request, JobRequest):
            hint = "use JobRequest(kind, args, tenant=...), or the handler's .for_tenant(tenant).request(...)"
            raise InvalidInputError(f"{shown(request)} is no job to enqueue", hint=hint)
        job, args_size = new_job(request, declared(request.kind), make_id())
        size += args_size
        if number > MOST_JOBS or size > MOST_BYTES:
            message = f"more than {MOST_JOBS} jobs, or {MOST_BYTES >> 20} MiB of args, in one call"
            raise InvalidInputError(message, tenant=request.tenant, hint="enqueue them in several calls")
        yield job


def checked_args(args: object, *, tenant: str) -> dict[str, Any]:
    """Return *args* as a dict; InvalidInputError where they are no object."""
    if not isinstance(args, Mapping):
        hint = "pass a dict; json.loads reads one from a text"
        raise InvalidInputError(f"args are {shown(args)}, no object", tenant=tenant, hint=hint)
    if SAVED in args:  # else a payload could set the saved values
        hint = "rename it: the name is reserved for what a run saves"
        raise InvalidInputError(f"args have the field {SAVED!r}", tenant=tenant, hint=hint)
    return dict(args)


def _group(request: JobRequest, declared: Declared | None, args: Mapping[str, Any]) -> str:
    if request.account is not None:
        check_name("account", request.account, tenant=request.tenant)
        if request.provider is None:
            hint = "give the provider, too: `account` names one of the accounts that a tenant has there"
            raise InvalidInputError(
                "the job has an account and no provider", tenant=request.tenant, hint=hint
            )
    if request.group is not None:
        return request.group
    of_kind = declared.group if declared else None
    if of_kind is not None:
        return of_kind if isinstance(of_kind, str) else of_kind(args)
    return connection_group(request.provider, request.account or "default") if request.provider else ""


def _tags(request: JobRequest) -> tuple[str, ...]:
    if isinstance(request.tags, tuple):  # as almost all are: by default there are none
        return request.tags
    if isinstance(request.tags, str):  # else each of its letters would be one
        hint = f"give a list: tags=[{shown(request.tags)}]"
        raise InvalidInputError("tags is one text, not a list", tenant=request.tenant, hint=hint)
    if isinstance(request.tags, Mapping) or not isinstance(request.tags, Iterable):
        message = f"tags are {shown(request.tags)}, no list"
        raise InvalidInputError(message, tenant=request.tenant, hint='give a list of texts: tags=["import"]')
    return tuple(request.tags)
