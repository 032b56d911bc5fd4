"""fairlead: every tenant's OAuth credentials fresh, every call within its limits, nothing lost on the way."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from fairlead._version import __version__

__all__ = [
    "BatchItemError",
    "BatchResult",
    "CallOptions",
    "Cancel",
    "Client",
    "Complete",
    "Discard",
    "EnqueuedJob",
    "Fairlead",
    "JobContext",
    "JobRequest",
    "Paginator",
    "RawResponse",
    "RequireReauth",
    "Response",
    "RetryPolicy",
    "RetryRule",
    "Roles",
    "Snooze",
    "StreamedResponse",
    "__version__",
]

if TYPE_CHECKING:
    from fairlead.app import EnqueuedJob, Fairlead, JobRequest
    from fairlead.app.client import Client
    from fairlead.app.client.batch import BatchItemError, BatchResult
    from fairlead.app.client.options import CallOptions
    from fairlead.app.client.paginator import Paginator
    from fairlead.app.client.response import Response
    from fairlead.app.client.streaming import StreamedResponse
    from fairlead.assembly.runtime import Roles
    from fairlead.engine.jobs.handler import JobContext
    from fairlead.policy.failures.retry import RetryPolicy, RetryRule
    from fairlead.policy.jobs.job import Cancel, Complete, Discard, RequireReauth, Snooze
    from fairlead.policy.limits.feedback.raw_response import RawResponse


_HOMES = {
    "BatchResult": "fairlead.app.client.batch",
    "CallOptions": "fairlead.app.client.options",
    "Cancel": "fairlead.policy.jobs.job",
    "Client": "fairlead.app.client",
    "Discard": "fairlead.policy.jobs.job",
    "Complete": "fairlead.policy.jobs.job",
    "EnqueuedJob": "fairlead.app",
    "Fairlead": "fairlead.app",
    "JobContext": "fairlead.engine.jobs.handler",
    "JobRequest": "fairlead.app",
    "Paginator": "fairlead.app.client.paginator",
    "RequireReauth": "fairlead.policy.jobs.job",
    "BatchItemError": "fairlead.app.client.batch",
    "RawResponse": "fairlead.policy.limits.feedback.raw_response",
    "Response": "fairlead.app.client.response",
    "RetryPolicy": "fairlead.policy.failures.retry",
    "RetryRule": "fairlead.policy.failures.retry",
    "Roles": "fairlead.assembly.runtime",
    "Snooze": "fairlead.policy.jobs.job",
    "StreamedResponse": "fairlead.app.client.streaming",
}


def __getattr__(name: str) -> object:
    # Lazily, so that `fairlead --version` and the supervisor of embedded servers start at once.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fairlead' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
