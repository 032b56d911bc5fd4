"""The smallest run that still breaks: faults that it does not need are left out, then chance where it can be.

First each fault alone is switched off for good where the breach stays. Then the draws that pick the next step
are replaced by "the oldest first" in ever smaller stretches (delta debugging). What remains is what it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.chance import Chance
from tests.simulation.run import Options, Outcome
from tests.simulation.swarm import Swarm

Run = Callable[[Options], Outcome]

FINEST = 16
"""Stretches of steps, at the finest: beyond it a run more is dearer than what it would tell."""


def shrink(run: Run, options: Options) -> Outcome:
    """The smallest run that breaks as *options* do; ValueError where these break nothing.

    A run breaks as another does when what it breaks first is of the same kind.
    """
    smallest = run(options)
    if smallest.broken is None:
        raise ValueError(f"seed {options.seed} breaks nothing hint: only a run that breaks can be shrunk")
    kind = smallest.broken.kind
    for smaller in (_without_faults, _without_chance):
        for candidate in smaller(smallest):
            outcome = run(candidate(smallest.options))
            if outcome.broken is not None and outcome.broken.kind == kind:
                smallest = outcome
    return smallest


Change = Callable[[Options], Options]


def _without_faults(of: Outcome) -> Iterator[Change]:
    on = Swarm.of(Chance(of.options.seed).swarm).without(of.options.without)
    for name in on.faults:
        yield lambda options, name=name: replace(options, without=options.without | {name})  # type: ignore[misc]


def _without_chance(of: Outcome) -> Iterator[Change]:
    """The whole run by order of age, then halves, quarters and so on."""
    stretches = 1
    while stretches <= FINEST:
        size = of.steps // stretches + 1
        for number in range(stretches):
            begin, end = number * size, (number + 1) * size
            yield lambda options, span=(begin, end): replace(options, fifo=(*options.fifo, span))  # type: ignore[misc]
        stretches *= 2
