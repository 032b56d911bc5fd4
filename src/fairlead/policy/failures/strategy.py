"""How to go on after a failed call (C4). Delays follow R15: a server's hint rules, is capped, never undercut.

| strategy        | delays                        | then                                                    |
| --------------- | ----------------------------- | ------------------------------------------------------- |
| aggressive      | 1, 2, 3, 3, ... s             | the call tries again itself                             |
| standard        | 5, 10, 20, 20, ... s          | the same                                                |
| exponential     | base, 2, 4, 8 times it ...    | the same, up to a cap                                   |
| linear          | base, 2, 3, 4 times it ...    | the same                                                |
| constant        | base                          | the same                                                |
| custom          | a list of your own            | the same; its last one repeats                          |
| circuit_breaker | the hint, else 60 s           | no try inside the call; its job comes back later        |
| parked          | the hint, else 15 min         | the same; the hint of a day's limit may be 24 h         |
| none            | none                          | it is over                                              |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from fairlead.policy.failures.backoff import Jitter, checked_draw, jittered_s, nominal_delay_s
from fairlead.policy.failures.hint import DAILY_PARK_CAP_S, HINT_CAP_S, hinted_delay


class StrategyName(StrEnum):
    """How to go on after a failed call."""

    AGGRESSIVE = "aggressive"
    STANDARD = "standard"
    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    CONSTANT = "constant"
    CUSTOM = "custom"
    CIRCUIT_BREAKER = "circuit_breaker"
    PARKED = "parked"
    NONE = "none"


class Next(StrEnum):
    """What becomes of a call that failed."""

    RETRY = "retry"
    """It is sent again, by the call itself."""
    LATER = "later"
    """The call ends; the job that made it comes back, and no attempt inside the call is spent."""
    OVER = "over"
    """Trying again does not help."""


_LISTS = {StrategyName.AGGRESSIVE: (1.0, 2.0, 3.0), StrategyName.STANDARD: (5.0, 10.0, 20.0)}
_LATER_S = {StrategyName.CIRCUIT_BREAKER: 60.0, StrategyName.PARKED: HINT_CAP_S}
_SCALED = frozenset({StrategyName.EXPONENTIAL, StrategyName.LINEAR, StrategyName.CONSTANT})


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to continue after a failure.

    Attributes:
        base_s: The base of computed delays.
        cap_s: The longest computed delay.
        jitter: Spreads delays that no server requested. Default full, as for failures of network and server;
            refusals for a limit take equal.
        delays_s: The delays of ``custom``.
        later_s: The delay of a parked job without a hint. Default 60 s, parked 15 min.

    Raises:
        ValueError: A delay is not valid.
    """

    name: StrategyName = StrategyName.EXPONENTIAL
    base_s: float = 1.0
    cap_s: float = 30.0
    jitter: Jitter = Jitter.FULL
    delays_s: tuple[float, ...] = ()
    later_s: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cap_s) and 0 < self.base_s <= self.cap_s):
            raise ValueError(f"base {self.base_s} s and cap {self.cap_s} s do not fit hint: 0 < base <= cap")
        if (self.name is StrategyName.CUSTOM) != bool(self.delays_s):
            raise ValueError("delays_s and the strategy custom go together hint: give both or neither")
        if any(not (math.isfinite(delay_s) and delay_s >= 0) for delay_s in self.delays_s):
            raise ValueError("a delay is no length of time hint: give finite numbers, 0 or more")

    @property
    def next(self) -> Next:
        """What it leads to, as long as tries are left."""
        if self.name is StrategyName.NONE:
            return Next.OVER
        return Next.LATER if self.name in _LATER_S else Next.RETRY

    def nominal_s(self, attempt: int, *, factor: float = 1.0) -> float:
        """Return the delay before jitter, in seconds; 0.0 for ``none``. *attempt* 0 is the first retry.

        *factor* scales the base of exponential, linear and constant (Mercado Libre 1.5; default 1).

        >>> [Strategy(StrategyName.AGGRESSIVE).nominal_s(n) for n in range(5)]
        [1.0, 2.0, 3.0, 3.0, 3.0]
        """
        if attempt < 0:
            raise ValueError(f"attempt {attempt} is negative hint: attempt 0 is the first retry")
        listed = self.delays_s or _LISTS.get(self.name)
        if listed:
            return listed[min(attempt, len(listed) - 1)]
        if self.name in _SCALED:
            return self._scaled_s(attempt, factor)
        return (self.later_s or _LATER_S[self.name]) if self.name in _LATER_S else 0.0

    def _scaled_s(self, attempt: int, factor: float) -> float:
        if self.name is StrategyName.EXPONENTIAL:
            return nominal_delay_s(attempt, base_s=self.base_s, cap_s=self.cap_s, factor=factor)
        times = attempt + 1 if self.name is StrategyName.LINEAR else 1
        return min(self.cap_s, self.base_s * factor * times)

    def delay_s(
        self,
        attempt: int,
        *,
        draw: float,
        hint_s: float | None = None,
        daily: bool = False,
        factor: float = 1.0,
    ) -> float:
        """Return the seconds until the next attempt, or until the job runs again; 0.0 for ``none``.

        The delay is never below *hint_s*, which the server requested, up to 15 min, or up to 24 h for a *daily* limit.
        *draw* is a random number in [0, 1). Spec: R15.

        >>> Strategy(StrategyName.STANDARD).delay_s(0, draw=0.0, hint_s=120.0)
        120.0
        """
        checked_draw(draw)
        nominal_s = self.nominal_s(attempt, factor=factor)
        if self.next is Next.OVER:
            return 0.0
        cap_s = DAILY_PARK_CAP_S if daily else HINT_CAP_S
        if hint_s is not None:
            # A park has no backoff of its own: spread over a tenth of the wait, not over its default.
            return hinted_delay(hint_s, cap_s, 0.0 if self.next is Next.LATER else nominal_s, draw)
        if self.next is Next.LATER:
            return hinted_delay(nominal_s, cap_s, 0.0, draw)
        return jittered_s(nominal_s, self.jitter, draw)
