"""Delta debugging: a history in which two implementations differ, cut down to what the difference needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

__all__ = ["shortest"]

S = TypeVar("S")


class _Found(Protocol):
    """A difference, and the number of the step after which it shows."""

    @property
    def step(self) -> int: ...


D = TypeVar("D", bound=_Found)


async def shortest(
    steps: Sequence[S], difference: Callable[[Sequence[S]], Awaitable[D | None]]
) -> tuple[list[S], D]:
    """Return *steps* without those that the difference does not need, and the difference."""
    first = await difference(steps)
    assert first is not None
    kept = list(steps[: first.step + 1])
    size = len(kept) // 2
    while size:
        at = 0
        while at < len(kept):
            shorter = kept[:at] + kept[at + size :]
            found = await difference(shorter)
            if found is None:
                at += size
            else:
                kept, first = shorter[: found.step + 1], found
        size //= 2
    return kept, first
