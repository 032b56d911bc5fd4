"""The named places in the product's code at which a process may die, or stand still, at some passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

from fairlead._core import faultpoint

MOST, MOST_STOPS = 0.05, 0.15
"""Of the passes that kill, and of those within a refresh that stop, at full strength."""
OFTEN, RARELY = "job.", 4.0
"""Places that are passed often, and how many times more passes kill at the others."""
REFRESH = "token."
"""How the names of the places within a refresh begin."""


class Dice(dict[str, tuple[int, str]]):
    """In the place of the plan in ``FAIRLEAD_FAULT``: a share of the passes is armed, by the draw.

    *kills* of the passes of places that are passed often, and *stops* of those within a refresh.
    """

    def __init__(self, draw: Random, kills: float, stops: float) -> None:
        super().__init__(armed=(0, ""))  # an empty plan would not be looked at
        self._draw = draw
        self.kills = kills
        self.stops = stops
        self.passes: dict[str, int] = {}

    def heal(self) -> None:
        """Nothing is armed any more."""
        self.kills = self.stops = 0.0

    def get(self, name: str, default: object = None) -> tuple[int, str]:
        """What to do at this pass."""
        hit, kills = self._draw.random(), self.kills * (1.0 if name.startswith(OFTEN) else RARELY)
        if hit < kills:
            return self.passes[name], "kill"
        if name.startswith(REFRESH) and hit < kills + self.stops:
            return self.passes[name], "stop"
        return 0, ""


@contextmanager
def armed(dice: Dice, strike: Callable[[str, str], None]) -> Iterator[Dice]:
    """Within it passes of fault points call *strike* with the place and what to do, by the *dice*.

    To "kill" ends the process whose code it is called from; to "stop" has it stand still after this step.
    """
    with patch.multiple(faultpoint, _armed=dice, _passes=dice.passes, _act=strike):
        yield dice
