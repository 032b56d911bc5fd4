"""What the benchmark of the gate compares: sides that decide whether to admit a call.

A side is a module (``bench.our_gate``, ``bench.limits.incrby``, ``bench.peers.*``) with the names of
`GateSide`; ``bench.gate_child`` runs one of them in a fresh process. Its limits are so large that nothing is
refused: a side that refuses fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from bench.sides import Contender, SideFailedError

PLENTY = 1_000_000_000
"""Units a second, and units at once."""

Decide = Callable[[int], Awaitable[float]]
"""Decides for the key of a number and returns when it knew (``time.perf_counter``).

Later work, such as the release of an admission, counts in throughput but not in the time of the decision.
"""


class GateSide(Protocol):
    """The names of such a module. *options*: ``keys``, ``tasks``, and those of the side."""

    PACKAGE: str | None
    """Its distribution, for the version; None for code of this repository."""
    SETTINGS: Mapping[str, Any]
    """Settings that differ from its defaults; shown in the row."""

    def opened(self, url: str, options: Mapping[str, Any]) -> AbstractAsyncContextManager[Decide]:
        """Connect and yield a function that decides."""


@dataclass(frozen=True, slots=True)
class Field:
    """All contenders: ours, our script alone, INCRBY, and the peers."""

    ours: Contender
    script: Contender
    incrby: Contender
    peers: Sequence[Contender]


def must(allowed: bool, name: str) -> None:
    """Raise SideFailedError for a refusal, which would otherwise be measured as a decision."""
    if not allowed:
        raise SideFailedError(f"{name} refused a call that its limits allow")
