"""The codes of the error classes: each class states its code, text and hint itself."""

from __future__ import annotations

from fairlead.errors import FailedError, FairleadError, JobFailedError, all_errors
from fairlead.policy.reasons.reason import Reason, ReasonClass

_ENDED = (FailedError, JobFailedError)


def _reason_of(error_class: type[FairleadError]) -> Reason:
    """Return the entry of *error_class* in the list of reasons; its text is the docstring's first paragraph."""
    is_end = error_class is FairleadError or issubclass(error_class, _ENDED)
    text = " ".join((error_class.__doc__ or error_class.code).split("\n\n")[0].split())
    return Reason(
        error_class.code,
        ReasonClass.END if is_end else ReasonClass.REFUSAL,
        text.replace("``", "`"),
        error_class.default_hint,
    )


ERRORS = tuple(
    _reason_of(error_class) for error_class in all_errors() if error_class.__module__ == "fairlead.errors"
)
"""One for each error class, parents first."""
