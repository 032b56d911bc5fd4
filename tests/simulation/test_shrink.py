"""A run that breaks is cut down to what it takes: the faults, and the stretch that needs chance."""

from __future__ import annotations

import pytest

from tests.simulation.chance import Chance
from tests.simulation.run import Options, Outcome
from tests.simulation.shrink import FINEST, shrink
from tests.simulation.swarm import Swarm
from tests.simulation.watch import Broken

STEPS = 1600


def outcome(options: Options, invariant: str | None, why: str = "planted") -> Outcome:
    broken = None if invariant is None else Broken(invariant, 1.0, why)
    return Outcome(options, "", STEPS, 1.0, None, broken, [], [], {}, {})


def seed_with(*faults: str) -> int:
    """The first seed that has them all, and more."""
    seeds = range(10_000)
    return next(
        n for n in seeds if len(on := Swarm.of(Chance(n).swarm).faults) > 4 and on.keys() >= set(faults)
    )


def test_only_the_faults_that_it_needs_are_left() -> None:
    seed = seed_with("kill", "cut")

    def run(options: Options) -> Outcome:
        needed = Swarm.of(Chance(seed).swarm).without(options.without).faults.keys() >= {"kill", "cut"}
        return outcome(options, "I6" if needed else None)

    smallest = shrink(run, Options(seed))
    swarm = Swarm.of(Chance(seed).swarm).without(smallest.options.without)
    assert set(swarm.faults) == {"kill", "cut"}


def test_another_breach_is_no_smaller_form_of_it() -> None:
    seed = seed_with("kill")

    def run(options: Options) -> Outcome:
        return outcome(options, "I6" if "kill" not in options.without else "I2")

    smallest = shrink(run, Options(seed))
    assert smallest.broken is not None
    assert smallest.broken.invariant == "I6"
    assert "kill" not in smallest.options.without


def test_another_mistake_under_the_same_name_is_none_either() -> None:
    seed = seed_with("kill", "cut")

    def run(options: Options) -> Outcome:
        reason = "work 7 (sim.call)" if "kill" not in options.without else "a slot"
        return outcome(options, "liveness", f"{reason} of quiet-{len(options.without)} is left")

    smallest = shrink(run, Options(seed))
    assert smallest.broken is not None
    assert smallest.broken.kind == "liveness: work _ (_) of _ is left"
    assert "kill" not in smallest.options.without
    assert "cut" in smallest.options.without


def test_chance_is_left_only_where_it_is_needed() -> None:
    def run(options: Options) -> Outcome:
        by_chance = not any(begin <= 700 < end for begin, end in options.fifo)
        return outcome(options, "I4" if by_chance else None)

    blanked = shrink(run, Options(1)).options.fifo
    steps_left = [step for step in range(STEPS) if not any(begin <= step < end for begin, end in blanked)]
    assert 700 in steps_left
    assert len(steps_left) <= STEPS / FINEST + FINEST


def test_run_that_breaks_nothing_cannot_be_shrunk() -> None:
    with pytest.raises(ValueError, match="breaks nothing"):
        shrink(lambda options: outcome(options, None), Options(1))
