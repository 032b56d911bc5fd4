"""Delta debugging: a history in which two implementations differ, cut down to what the difference needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

__all__ = ["shortest"]

S = TypeVar("S")


class _Failure(Protocol):
    """A difference, and the number of the step after which it shows."""

    @property
    def step(self) -> int: ...


D = TypeVar("D", bound=_Failure)


async def shortest(
    steps: Sequence[S], difference: Callable[[Sequence[S]], Awaitable[D | None]]
) -> tuple[list[S], D]:
    """Return *steps* without those that the difference does not need, and the difference."""
    first = await difference(steps)
    assert first is not None
    kept_steps = list(steps[: first.step + 1])
    size = len(kept_steps) // 2
    while size:
        at = 0
        while at < len(kept_steps):
            shorter = kept_steps[:at] + kept_steps[at + size :]
            shorter_failure = await difference(shorter)
            if shorter_failure is None:
                at += size
            else:
                kept_steps, first = shorter[: shorter_failure.step + 1], shorter_failure
        size //= 2
    return kept_steps, first
