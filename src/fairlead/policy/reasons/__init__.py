"""The one home of codes: why work waits, is refused or has ended.

A code is written as the ``code`` of one of these constants, never as a literal. A test compares the registry with
the codes in Python and SQL, and docs/reference/reasons.md is generated from it.

Three sets of codes are open: codes that a provider gives itself, ``http_`` with a status, and the class names of
exceptions of handlers. ``not_sent_`` before a code of a call means that the request was not sent. Spec: Y1.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType

from fairlead.policy.reasons import (
    call_reasons,
    error_reasons,
    job_reasons,
    limit_reasons,
    process_reasons,
    token_reasons,
)
from fairlead.policy.reasons.reason import Reason, ReasonClass

__all__ = ["BY_SUBJECT", "REASONS", "Reason", "ReasonClass"]


def _constants(module: ModuleType) -> tuple[Reason, ...]:
    return tuple(value for value in vars(module).values() if isinstance(value, Reason))


BY_SUBJECT: Mapping[str, tuple[Reason, ...]] = MappingProxyType(
    {
        "Jobs": _constants(job_reasons),
        "Calls": _constants(call_reasons),
        "Limits": _constants(limit_reasons),
        "Credentials": _constants(token_reasons),
        "The process and its host": _constants(process_reasons),
        "Errors": error_reasons.ERRORS,
    }
)
"""The reasons of each subject, in the order in which the page lists them."""
REASONS: Mapping[str, Reason] = MappingProxyType(
    {reason.code: reason for reasons in BY_SUBJECT.values() for reason in reasons}
)
"""The reason of each code."""
