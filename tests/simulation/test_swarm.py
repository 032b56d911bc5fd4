"""The faults of a seed are drawn once, told, and can be left out without a change of the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from fairlead._core import faultpoint
from tests.simulation import points
from tests.simulation.chance import Chance
from tests.simulation.spells import Spells
from tests.simulation.stores import Parts
from tests.simulation.swarm import FAULTS, Swarm
from tests.simulation.trouble import Trouble
from tests.simulation.watch import NOBODY, Struck
from tests.simulation.world import World


def test_a_seed_has_some_faults_and_they_are_drawn_again_alike() -> None:
    swarms = [Swarm.of(Random(seed)) for seed in range(300)]
    assert swarms[7] == Swarm.of(Random(7))
    assert {name for swarm in swarms for name in swarm.faults} == set(FAULTS)
    assert any(not swarm.faults for swarm in swarms)
    assert all(0 < strength <= 1 for swarm in swarms for strength in swarm.faults.values())


def test_draw_does_not_shift_later_draws() -> None:
    draws = [Random(seed) for seed in range(20)]
    for draw in draws:
        Swarm.of(draw)
    fresh = [Random(seed) for seed in range(20)]
    for draw in fresh:
        for _ in range(1 + 2 * len(FAULTS)):
            draw.random()
    assert [draw.random() for draw in draws] == [draw.random() for draw in fresh]


def test_a_fault_is_left_out_and_the_others_stay() -> None:
    full_swarm = next(swarm for seed in range(99) if len((swarm := Swarm.of(Random(seed))).faults) > 3)
    name, *others = full_swarm.faults
    less = full_swarm.without({name})
    assert less.strength(name) == 0.0
    assert {other: less.strength(other) for other in others} == {o: full_swarm.faults[o] for o in others}
    assert [line.split()[0] for line in less.words()] == others


def test_an_unknown_fault_is_told() -> None:
    with pytest.raises(ValueError, match="no fault is called 'rain'"):
        Swarm({}).without({"rain"})


# ---- fault points --------------------------------------------------------------------------------


class Killed(BaseException):
    """What a process is left by."""


@contextmanager
def killing(share: float) -> Iterator[list[str]]:
    points_struck: list[str] = []

    def strike(point: str, action: str) -> None:
        points_struck.append(point)
        assert action == "kill"
        raise Killed

    with points.armed(points.Dice(Random(1), share, 0.0), strike) as dice:
        yield points_struck
        dice.heal()
        faultpoint.faultpoint("job.before_ack")  # healed


def test_an_armed_point_kills_in_its_place() -> None:
    with killing(1.0) as points_struck, pytest.raises(Killed):
        faultpoint.faultpoint("job.after_claim")
    assert points_struck == ["job.after_claim"]


def test_some_passes_kill_and_most_do_not() -> None:
    killed = 0
    with killing(0.05) as points_struck:
        for _ in range(1000):
            try:
                faultpoint.faultpoint("job.after_claim")
            except Killed:
                killed += 1
    assert 20 <= killed == len(points_struck) <= 100


def test_more_passes_kill_where_there_are_few() -> None:
    killed: list[str] = []
    with points.armed(points.Dice(Random(1), 0.05, 0.0), lambda point, action: killed.append(point)):
        for _ in range(1000):
            faultpoint.faultpoint("job.after_claim")
            faultpoint.faultpoint("schedule_run.after_take")
    assert 150 <= killed.count("schedule_run.after_take") <= 250
    assert 20 <= killed.count("job.after_claim") <= 100


def test_a_stop_is_within_a_refresh_alone() -> None:
    struck: list[tuple[str, str]] = []
    with points.armed(points.Dice(Random(1), 0.0, 1.0), lambda *args: struck.append(args)):
        faultpoint.faultpoint("job.after_claim")
        faultpoint.faultpoint("token.after_answer")
    assert struck == [("token.after_answer", "stop")]


def test_afterwards_no_point_is_armed() -> None:
    with killing(1.0):
        pass
    faultpoint.faultpoint("job.after_claim")


# ---- the end of all faults -----------------------------------------------------------------------


def test_fault_that_ends_early_is_reported_as_over() -> None:
    """Or whoever counts from the end of an outage would wait for one that is over."""
    world = World(Chance(1), Swarm({}), Parts())
    away = Spells("away")
    world.watch.tell(Struck("away", 60.0), NOBODY)
    Trouble(world.swarm, world.chance.faults, world).heal()
    for entry in world.watch.told:
        away.see(entry)
    world.close()
    assert away.ended_for_all(0.0) == 0.0
