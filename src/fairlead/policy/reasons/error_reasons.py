"""The codes of the error classes: each class states its code, text and hint itself."""

from __future__ import annotations

from fairlead.errors import FailedError, FairleadError, JobFailedError, all_errors
from fairlead.policy.reasons.reason import Reason, ReasonClass

_ENDED = (FailedError, JobFailedError)


def _reason_of(kind: type[FairleadError]) -> Reason:
    kind_of = ReasonClass.END if kind is FairleadError or issubclass(kind, _ENDED) else ReasonClass.REFUSAL
    text = " ".join((kind.__doc__ or kind.code).split("\n\n")[0].split())
    return Reason(kind.code, kind_of, text.replace("``", "`"), kind.default_hint)


ERRORS = tuple(_reason_of(kind) for kind in all_errors() if kind.__module__ == "fairlead.errors")
"""One for each error class, parents first."""
