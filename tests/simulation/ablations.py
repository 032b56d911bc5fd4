"""The safeguards, each taken out of the simulated world in turn: what is then let through must be found.

A check that never fails proves nothing. None of these is a switch in the product: each is another part of the
world (`stores.Parts`), which stands in `careless` or `careless_gate`.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fairlead.policy.jobs import job as asked
from tests.simulation import careless, careless_gate
from tests.simulation.careless_gate import redis_of
from tests.simulation.chance import Chance
from tests.simulation.run import Options, run_seed
from tests.simulation.stores import Parts
from tests.simulation.swarm import Swarm
from tests.simulation.watch import Broken

MOST_SEEDS = 200
"""Within so many each must be found."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """*made* gives a world without the safeguard; made anew for each seed, as it may keep something.

    *breaks*: the invariants that stand behind it. Whatever else goes wrong without it is no proof of them.
    *needs*: faults without all of which nothing asks for it, so that such a seed is passed over.
    *first*: seeds that are looked at before all others, where what it lets through is rare.
    """

    name: str
    breaks: tuple[str, ...]
    made: Callable[[], Parts]
    needs: tuple[str, ...] = ()
    first: tuple[int, ...] = ()

    def may_show(self, seed: int) -> bool:
        """Whether a fault that it needs is on."""
        on = Swarm.of(Chance(seed).swarm).faults
        return not self.needs or any(name in on for name in self.needs)

    def parts(self) -> Parts:
        """The same, with the name of what it lacks."""
        return replace(self.made(), lacks=self.name)


@dataclass(frozen=True, slots=True)
class AblationFinding:
    """What found it, at which seed."""

    seed: int
    broken: Broken


ABLATIONS: tuple[Ablation, ...] = (
    Ablation("no fence check", ("I2",), lambda: Parts(jobs=careless.NoFence)),
    Ablation("release without owner check", ("I11",), lambda: Parts(sessions=careless.GivesBackEverybodys)),
    Ablation(
        "refresh lock by time", ("I6",), lambda: Parts(credentials=careless.LockByTime), ("freeze", "stop")
    ),
    Ablation(
        "local clock for leases", ("I4",), careless_gate.by_local_clock(careless_gate.LeasesByLocalClock)
    ),
    Ablation(
        "local clock for refills", ("I5",), careless_gate.by_local_clock(careless_gate.RefillsByLocalClock)
    ),
    Ablation(
        "replayed COMMIT", ("I3",), lambda: Parts(jobs=careless.ReplaysCommits), ("lost_commit", "late_store")
    ),
    Ablation(
        "buckets full after a loss",
        ("I5",),
        lambda: Parts(redis=redis_of(careless_gate.FullAfterLoss)),
        ("redis_loss", "redis_old"),
    ),
    Ablation(
        "rescues right after an outage",
        ("I11",),
        lambda: Parts(sessions=careless.DeclaresAtOnce),
        ("database_away",),
    ),
    Ablation("no heartbeat during a handler", ("I11",), lambda: Parts(alter=careless.silent_while_it_works)),
    Ablation(
        "retries without a budget",
        ("I10",),
        lambda: Parts(alter=careless_gate.without_a_budget),
        ("ill", "storm", "cut_calls"),
    ),
    Ablation(
        "a failure lengthens no streak",
        ("I7",),
        lambda: Parts(jobs=careless.FailuresAreForgotten),
        ("poison", "ill", "cut_calls"),
    ),
    Ablation("a rescue is no attempt", ("I7",), lambda: Parts(sessions=careless.CrashesAreFree)),
    Ablation(
        "first come, first served", ("I8",), lambda: Parts(jobs=careless.FirstComeFirstServed), ("noisy",)
    ),
    Ablation(
        "a probe for everybody",
        ("I12",),
        lambda: Parts(redis=redis_of(careless_gate.EverybodyProbes)),
        ("ill", "cut_calls"),
    ),
    Ablation(
        "save without compare-and-set",
        ("I6",),
        lambda: Parts(credentials=careless.SavesWhateverStands),
        ("freeze", "stop"),
        (207, 307),
    ),
    Ablation(
        "a refusal is taken for a loss",
        ("I6",),
        lambda: Parts(alter=careless.takes_refusals_for_losses),
        ("issuer_busy", "issuer_ill"),
    ),
    Ablation(
        "replay at once",
        ("I6",),
        lambda: Parts(alter=careless.replays_at_once),
        ("issuer_late",),
        (752,),
    ),
    Ablation(
        "a late send counts as of its mark",
        ("I6",),
        lambda: Parts(credentials=careless.KeepsThePlaceOfTheMark),
        ("stop",),
        (8, 334),
    ),
    Ablation("a claim takes the job out", ("I1",), lambda: Parts(sessions=careless.HasNothingToGiveBack)),
    Ablation(
        "a timeout cancels the job",
        ("I1",),
        careless.cut_off_as(asked.Cancel("it was cancelled")),
        ("slow_jobs",),
    ),
    Ablation("a timeout ends the work", ("I3",), careless.cut_off_as(asked.Complete()), ("slow_jobs",)),
    Ablation("tokens kept without tenant", ("I9",), lambda: Parts(alter=careless.with_tokens_of_no_tenant)),
    Ablation("slots of each process", ("I4",), lambda: Parts(redis=redis_of(careless_gate.SlotsOfEach))),
)


def named(name: str) -> Ablation:
    """The one of that name; StopIteration where there is none."""
    return next(ablation for ablation in ABLATIONS if ablation.name == name)


def search(ablation: Ablation, seeds: Iterable[int]) -> AblationFinding | None:
    """The first of *seeds* at which what is behind the safeguard breaks without it, and nothing with it."""
    for seed in filter(ablation.may_show, seeds):
        broken = run_seed(Options(seed, parts=ablation.parts())).broken
        if (
            broken is not None
            and broken.invariant in ablation.breaks
            and run_seed(Options(seed)).broken is None
        ):
            return AblationFinding(seed, broken)
    return None


def search_all(seeds: Sequence[int], processes: int) -> Iterator[tuple[str, AblationFinding | None]]:
    """The same for each ablation, over some processes of this machine."""
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        tasks = [(number, tuple(seeds)) for number in range(len(ABLATIONS))]
        yield from pool.imap(_search, tasks)


def _search(task: tuple[int, tuple[int, ...]]) -> tuple[str, AblationFinding | None]:
    number, seeds = task
    ablation = ABLATIONS[number]
    return ablation.name, search(ablation, (*ablation.first, *seeds))
