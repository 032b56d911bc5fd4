"""One answer with everything that rules may ask of it, and the way to its verdict."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fairlead.policy.calls.classify.error_fields import BodyError, codes_of, messages_of
from fairlead.policy.limits.feedback.raw_response import LimitObservation, RawResponse
from fairlead.policy.text.safe import safe_text

SHOWN = 300
"""Characters of a message that are repeated to people."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step on the way to a verdict, for people: where it looked, and what it saw."""

    place: str
    seen: str


@dataclass(frozen=True)
class ClassificationContext:
    """One answer under judgement. What is dear to read is read once, and only if some rule asks.

    *said*: what its body says by a protocol of its own. *refusal*: the limit that the provider's dialect
    heard refused. *trail*: takes the findings; None: nobody wants them.
    """

    response: RawResponse
    body_error: BodyError | None
    refusal: LimitObservation | None
    now_epoch_s: float | None
    trace: list[TraceStep] | None = None

    @cached_property
    def codes(self) -> tuple[str, ...]:
        """Error codes, the one first that the dialect knows."""
        told = (self.refusal.code,) if self.refusal is not None and self.refusal.code else ()
        return tuple(dict.fromkeys((*told, *codes_of(self.response))))

    @cached_property
    def messages(self) -> tuple[str, ...]:
        """What it says in words."""
        return (
            *(self.body_error.messages if self.body_error is not None else ()),
            *messages_of(self.response),
        )

    def note(self, place: str, seen: str) -> None:
        """Tell of one step."""
        if self.trace is not None:
            self.trace.append(TraceStep(place, safe_text(seen, SHOWN)))

    def note_beginning(self, told: tuple[LimitObservation, ...]) -> None:
        """Tell what the answer holds, before any rule is asked."""
        if self.trace is None:
            return
        body_error = self.body_error
        codes = ", ".join(body_error.codes) if body_error is not None else ""
        limits = ", ".join(map(_limit, told))
        self.note("answer", f"status {self.response.status}")
        self.note(
            "protocol body",
            f"{body_error.protocol}: {codes or 'no code'}" if body_error is not None else "none",
        )
        self.note("limits", limits or "nothing told")
        self.note("provider codes", ", ".join(self.codes) or "none")
        self.note("message", next(iter(self.messages), "none"))


def _limit(item: LimitObservation) -> str:
    code = f" ({item.code})" if item.code else ""
    return f"{item.limit} {'refused' if item.refused else 'told'}{code}"
