"""The named places in the product's code at which a process may die: some of the passes kill it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

from fairlead import faultpoint

MOST = 0.05
"""Of the passes, at full strength."""


class Dice(dict[str, tuple[int, str]]):
    """In the place of the plan in ``FAIRLEAD_FAULT``: a *share* of the passes is armed, by the draw."""

    def __init__(self, draw: Random, share: float) -> None:
        super().__init__(armed=(0, ""))  # an empty plan would not be looked at
        self._draw = draw
        self.share = share
        self.passes: dict[str, int] = {}

    def get(self, name: str, default: object = None) -> tuple[int, str]:
        """What to do at this pass."""
        hit = self._draw.random() < self.share
        return (self.passes[name], "kill") if hit else (0, "")


@contextmanager
def armed(draw: Random, share: float, kill: Callable[[str], None]) -> Iterator[Dice]:
    """Within it a *share* of the passes of fault points calls *kill* with the name of the place.

    *kill* ends the process whose code it is called from. The share may be changed while it lasts.
    """
    dice = Dice(draw, share)

    def act(name: str, action: str) -> None:
        kill(name)

    with patch.multiple(faultpoint, _armed=dice, _passes=dice.passes, _act=act):
        yield dice
