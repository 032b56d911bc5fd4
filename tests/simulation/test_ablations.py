"""Without a safeguard the invariant behind it breaks: a check that never fails proves nothing.

Each is looked for at the seed that found it before, then at the others: a change of the product moves what
happens at a seed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.ablations import ABLATIONS, MOST_SEEDS, Ablation, search

FOUND_BEFORE = {
    "no fence check": 3,
    "release without owner check": 10,
    "refresh lock by time": 8,
    "local clock for leases": 8,
    "replayed COMMIT": 0,
    "buckets full after a loss": 17,
    "no heartbeat during a handler": 0,
    "retries without a budget": 10,
    "a rescue is no attempt": 2,
    "first come, first served": 25,
    "a probe for everybody": 37,
    "save without compare-and-set": 8,
}


def seeds(first: int) -> Iterator[int]:
    yield first
    yield from (seed for seed in range(MOST_SEEDS) if seed != first)


@pytest.mark.slow
@pytest.mark.parametrize("ablation", ABLATIONS, ids=[ablation.name for ablation in ABLATIONS])
def test_it_is_found(ablation: Ablation) -> None:
    assert search(ablation, seeds(FOUND_BEFORE[ablation.name])) is not None


def test_there_are_twelve() -> None:
    assert {ablation.name for ablation in ABLATIONS} == set(FOUND_BEFORE)
    assert len(ABLATIONS) == 12
