"""Without a safeguard the invariant behind it breaks: a check that never fails proves nothing.

Each is looked for at the seed that found it before, then at the others: a change of the product moves what
happens at a seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation import ablations
from tests.simulation.ablations import ABLATIONS, MOST_SEEDS, Ablation, search
from tests.simulation.invariants import watching
from tests.simulation.swarm import FAULTS

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "simulation.md"
ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| (I\d+(?:, I\d+)*) \| ([^|]*?) ?\|$", re.MULTILINE)
"""Of its table: the name, what it breaks, and the seeds that are looked at first."""
FOUND_BEFORE = {
    "no fence check": 7,
    "release without owner check": 0,
    "refresh lock by time": 14,
    "local clock for leases": 3,
    "local clock for refills": 1,
    "replayed COMMIT": 0,
    "buckets full after a loss": 53,
    "rescues right after an outage": 16,
    "no heartbeat during a handler": 0,
    "retries without a budget": 19,
    "a failure lengthens no streak": 0,
    "a rescue is no attempt": 3,
    "first come, first served": 37,
    "a probe for everybody": 37,
    "save without compare-and-set": 207,
    "a refusal is taken for a loss": 20,
    "replay at once": 752,
    "a late send counts as of its mark": 8,
    "a claim takes the job out": 0,
    "a timeout cancels the job": 4,
    "a timeout ends the work": 4,
    "tokens kept without tenant": 0,
    "slots of each process": 0,
}
EVERY = {invariant.name for invariant in watching()} | {"I1", "I6"}
"""Those that are watched, and those that are judged at the end."""


def seeds(first: int) -> Iterator[int]:
    yield first
    yield from (seed for seed in range(MOST_SEEDS) if seed != first)


@pytest.mark.slow
@pytest.mark.parametrize("ablation", ABLATIONS, ids=[ablation.name for ablation in ABLATIONS])
def test_missing_safeguard_is_found(ablation: Ablation) -> None:
    finding = search(ablation, seeds(FOUND_BEFORE[ablation.name]))
    assert finding is not None
    assert finding.broken.invariant in ablation.breaks


def test_each_invariant_stands_behind_a_safeguard() -> None:
    assert {ablation.name for ablation in ABLATIONS} == set(FOUND_BEFORE)
    assert {name for ablation in ABLATIONS for name in ablation.breaks} == EVERY
    assert {name for ablation in ABLATIONS for name in ablation.needs} <= set(FAULTS)


@pytest.mark.slow
def test_another_breach_does_not_count() -> None:
    fence = ablations.named("no fence check")
    assert search(replace(fence, breaks=("I9",)), [FOUND_BEFORE[fence.name]]) is None


def test_the_page_tells_of_each() -> None:
    table_rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert table_rows == [
        (ablation.name, ", ".join(ablation.breaks), ", ".join(map(str, ablation.first)))
        for ablation in ABLATIONS
    ]
