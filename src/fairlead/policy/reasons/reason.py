"""What a reason is, and the three classes of reasons."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PAGE = "docs/reference/reasons.md"


class ReasonClass(StrEnum):
    """What became of the work."""

    WAIT = "wait"
    """It is not lost: it starts, or starts again, later."""
    REFUSAL = "refusal"
    """It was not started, and nothing was sent."""
    END = "end"
    """It has ended, well or not."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why work waits, is refused or has ended.

    Attributes:
        code: The stable word in errors, events, dead letters, `explain` and the command line.
        kind: Whether the work waits, was refused or has ended.
        text: What happened, in one sentence.
        hint: What to do now, in one sentence.
    """

    code: str
    kind: ReasonClass
    text: str
    hint: str

    @property
    def anchor(self) -> str:
        """The place on the page of reasons that explains it."""
        return f"{PAGE}#{self.code}"


def wait(code: str, text: str, hint: str) -> Reason:
    """Return a reason why work waits."""
    return Reason(code, ReasonClass.WAIT, text, hint)


def refusal(code: str, text: str, hint: str) -> Reason:
    """Return a reason why work is refused."""
    return Reason(code, ReasonClass.REFUSAL, text, hint)


def end(code: str, text: str, hint: str) -> Reason:
    """Return a reason why work has ended."""
    return Reason(code, ReasonClass.END, text, hint)
