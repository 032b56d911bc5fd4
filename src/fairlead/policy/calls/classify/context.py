"""One response with all that rules can ask of it, and the steps that lead to its verdict."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fairlead.policy.calls.classify.error_fields import BodyError, find_codes, find_messages
from fairlead.policy.limits.feedback.raw_response import LimitObservation, RawResponse
from fairlead.policy.text.safe import safe_text

SHOWN = 300
"""Characters of a message that are shown."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of a classification, and what it found."""

    step: str
    finding: str


@dataclass(frozen=True)
class ClassificationContext:
    """One response to classify. Costly parts are read once, and only if a rule needs them.

    Attributes:
        body_error: The failure that the body states by a protocol of its own.
        refusal: The limit that refused the call, as the provider's dialect reads it.
        trace: Receives the steps. None: they are not recorded.
    """

    response: RawResponse
    body_error: BodyError | None
    refusal: LimitObservation | None
    now_epoch_s: float | None
    trace: list[TraceStep] | None = None

    @cached_property
    def codes(self) -> tuple[str, ...]:
        """The error codes, first the one that the dialect found."""
        refusal_codes = (self.refusal.code,) if self.refusal is not None and self.refusal.code else ()
        return tuple(dict.fromkeys((*refusal_codes, *find_codes(self.response))))

    @cached_property
    def messages(self) -> tuple[str, ...]:
        """The error messages."""
        return (
            *(self.body_error.messages if self.body_error is not None else ()),
            *find_messages(self.response),
        )

    def add_step(self, step: str, finding: str) -> None:
        """Append one step to the trace."""
        if self.trace is not None:
            self.trace.append(TraceStep(step, safe_text(finding, SHOWN)))

    def trace_response(self, observations: tuple[LimitObservation, ...]) -> None:
        """Append what the response contains, before any rule is applied."""
        if self.trace is None:
            return
        body_error = self.body_error
        codes = ", ".join(body_error.codes) if body_error is not None else ""
        limits = ", ".join(map(_limit, observations))
        self.add_step("answer", f"status {self.response.status}")
        self.add_step(
            "protocol body",
            f"{body_error.protocol}: {codes or 'no code'}" if body_error is not None else "none",
        )
        self.add_step("limits", limits or "nothing told")
        self.add_step("provider codes", ", ".join(self.codes) or "none")
        self.add_step("message", next(iter(self.messages), "none"))


def _limit(item: LimitObservation) -> str:
    code = f" ({item.code})" if item.code else ""
    return f"{item.limit} {'refused' if item.refused else 'told'}{code}"
