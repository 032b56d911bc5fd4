"""What the benchmark of the gate compares: sides that decide whether a call may go now.

A side is a module (``bench.our_gate``, ``bench.limits.incrby``, ``bench.peers.*``) with the names of
`GateSide`; ``bench.gate_child`` runs one of them in a fresh process. Its limits are so large that nothing is
refused: a side that refuses fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from bench.sides import Contender, SideFailed

PLENTY = 1_000_000_000
"""Units a second, and units at once."""

Decide = Callable[[int], Awaitable[float]]
"""Decides for the key of this number; gives when its answer was there (``time.perf_counter``).

What it does after that (an admission is given back) counts in throughput, but not in the time of the answer.
"""


class GateSide(Protocol):
    """What such a module has. *options*: ``keys``, ``tasks``, and what the side is asked to be."""

    PACKAGE: str | None
    """Its distribution, for the version; None for code of this repository."""
    SETTINGS: Mapping[str, Any]
    """What it was given that is not its default; told in the row."""

    def opened(self, url: str, options: Mapping[str, Any]) -> AbstractAsyncContextManager[Decide]:
        """Connected, ready to decide."""


@dataclass(frozen=True, slots=True)
class Field:
    """All contenders: ours, our script alone, INCRBY, and the peers."""

    ours: Contender
    script: Contender
    incrby: Contender
    peers: Sequence[Contender]


def must(allowed: bool, name: str) -> None:
    """A refusal would be measured as if it were an answer like the others."""
    if not allowed:
        raise SideFailed(f"{name} refused a call that its limits allow")
