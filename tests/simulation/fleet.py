"""Many seeds over several processes of this machine, in the order of the seeds."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterable, Iterator

from tests.simulation.run import Options, Outcome, run_seed

LIVES = 50
"""Seeds that one process runs before a fresh one takes its place: nothing is collected while a seed runs."""


def cores() -> int:
    """Of this machine, at most 8."""
    return min(8, os.cpu_count() or 1)


def run_many(options: Iterable[Options], processes: int | None = None) -> Iterator[Outcome]:
    """The outcome of each, as they come, in order. *processes*: default one for each core."""
    count = processes or cores()
    if count == 1:
        yield from map(run_seed, options)
        return
    # what is loaded stays: a collection after each seed need not look at it
    with multiprocessing.get_context("fork").Pool(count, gc.freeze, maxtasksperchild=LIVES) as pool:
        yield from pool.imap(run_seed, options)
