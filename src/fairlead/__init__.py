"""fairlead: every tenant's OAuth credentials fresh, every call within its limits, nothing lost on the way."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "BatchResult",
    "CallOptions",
    "Cancel",
    "Client",
    "Discard",
    "Done",
    "EnqueuedJob",
    "Fairlead",
    "Health",
    "JobContext",
    "JobRequest",
    "Listing",
    "NeedsReauth",
    "NotDone",
    "Reply",
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
    from fairlead.app.client.batch import BatchResult, NotDone
    from fairlead.app.client.listing import Listing
    from fairlead.app.client.options import CallOptions
    from fairlead.app.client.response import Response
    from fairlead.app.client.streaming import StreamedResponse
    from fairlead.engine.handler import JobContext
    from fairlead.policy.feedback.reply import Reply
    from fairlead.policy.gate.breaker import Health
    from fairlead.policy.job import Cancel, Discard, Done, NeedsReauth, Snooze
    from fairlead.policy.retry import RetryPolicy, RetryRule
    from fairlead.runtime import Roles


_HOMES = {
    "BatchResult": "fairlead.app.client.batch",
    "CallOptions": "fairlead.app.client.options",
    "Cancel": "fairlead.policy.job",
    "Client": "fairlead.app.client",
    "Discard": "fairlead.policy.job",
    "Done": "fairlead.policy.job",
    "EnqueuedJob": "fairlead.app",
    "Fairlead": "fairlead.app",
    "Health": "fairlead.policy.gate.breaker",
    "JobContext": "fairlead.engine.handler",
    "JobRequest": "fairlead.app",
    "Listing": "fairlead.app.client.listing",
    "NeedsReauth": "fairlead.policy.job",
    "NotDone": "fairlead.app.client.batch",
    "Reply": "fairlead.policy.feedback.reply",
    "Response": "fairlead.app.client.response",
    "RetryPolicy": "fairlead.policy.retry",
    "RetryRule": "fairlead.policy.retry",
    "Roles": "fairlead.runtime",
    "Snooze": "fairlead.policy.job",
    "StreamedResponse": "fairlead.app.client.streaming",
}


def __getattr__(name: str) -> object:
    # Lazily, so that `fairlead --version` and the supervisor of embedded servers start at once.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fairlead' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
