"""Which faults a seed has, and how strong each is: drawn first, told in words, and each can be left out.

A run with every fault at once finds little: the ones that stop work hide the ones that need it. So each seed
has some, by the draw (swarm testing).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random

SHARE_ON = 0.3
"""Of the seeds in which a fault is on."""
SHARE_CALM = 0.05
"""Of the seeds that have no fault at all."""

FAULTS: Mapping[str, str] = {
    "kill": "processes are killed",
    "freeze": "processes stand still for up to two minutes",
    "restart": "processes are asked to stop, and begin anew",
    "points": "processes are killed at named places in the code",
    "jump": "wall clocks of processes jump",
    "cut": "operations of the database are lost before they are done",
    "lost_commit": "operations of the database are done and their answers are lost",
    "slow_store": "operations of the database take seconds",
    "database_away": "the database is away from one process, or from all",
    "redis_loss": "Redis loses all it knows",
    "redis_old": "Redis comes back with an old state",
    "redis_stall": "Redis answers nobody for seconds",
    "redis_away": "Redis is away from one process, or from all",
    "storm": "the upstream answers 429",
    "ill": "the upstream answers 503",
    "slow_calls": "the upstream takes up to 20 s",
    "cut_calls": "the upstream breaks connections",
    "issuer_late": "refreshes are held up on their way there",
    "issuer_slow": "answers of the issuer take long",
    "issuer_lost": "answers of the issuer are lost",
    "issuer_cut": "the issuer breaks connections",
    "issuer_down": "the issuer is down",
    "issuer_busy": "the issuer answers 429",
    "issuer_ill": "the issuer answers 503",
    "slow_jobs": "some jobs take longer than a lease",
    "poison": "some jobs fail each time",
    "killer": "some jobs kill their process",
    "noisy": "one tenant has many times the work of the others",
    "stop": "processes stand still at named places of a refresh",
    "late_store": "operations of the database are done after their callers have given them up",
    "redis_lost": "Redis does what it is asked, and the answers are lost",
    "disk_full": "the disk of a host is full",
}
"""All there are, in words."""


@dataclass(frozen=True, slots=True)
class Swarm:
    """The faults of one seed by name, each with its strength above 0 and up to 1."""

    faults: Mapping[str, float]

    @classmethod
    def of(cls, draw: Random) -> Swarm:
        """Drawn; how many draws it takes does not depend on what they give."""
        calm = draw.random() < SHARE_CALM
        drawn = {name: (draw.random(), 1.0 - draw.random()) for name in FAULTS}
        on = {name: strength for name, (chance, strength) in drawn.items() if chance < SHARE_ON}
        return cls({} if calm else on)

    def without(self, names: Collection[str]) -> Swarm:
        """The same but for *names*; ValueError for one that is no fault."""
        unknown = sorted(set(names) - set(FAULTS))
        if unknown:
            raise ValueError(f"no fault is called {unknown[0]!r} hint: one of {', '.join(FAULTS)}")
        return Swarm({name: strength for name, strength in self.faults.items() if name not in names})

    def strength(self, name: str) -> float:
        """0: it is off."""
        return self.faults.get(name, 0.0)

    def words(self) -> list[str]:
        """One line for each fault."""
        return [f"{name} {strength:.2f}: {FAULTS[name]}" for name, strength in self.faults.items()]
