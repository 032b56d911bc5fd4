"""Whether each fault really happened: a seed whose faults met nobody shows nothing about them.

A strike is counted where it strikes: at the operation that was lost, the call that was refused, the process
that died. So a fault that is drawn and does nothing is found, and so is a place in the code that is passed no
more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from fairlead._core.faultpoint import POINTS
from tests.simulation.points import REFRESH
from tests.simulation.swarm import FAULTS

ENOUGH = 200
"""Seeds in which each must have happened."""
DEGRADED_POINTS = {
    "kill frozen": "of those, one that stood still",
    "database_away one": "of those, from one process alone",
    "redis_away one": "of those, from one process alone",
}
"""What a fault may do besides, and the seeds are to have seen."""
ENDED = {"kill": "killed there", "stop": "stopped there"}
"""What became of who passed a place in the code, as the table has it."""
UNREACHED: Mapping[str, str] = {
    "job.within_ack": "it stands in the store on PostgreSQL, whose place the store in memory has here"
}
"""Places in the code that no seed can pass, and why."""


def passed(point: str) -> str:
    """What a pass of a fault point is counted as."""
    return f"pass {point}"


def never(struck: Mapping[str, int]) -> list[str]:
    """What should have happened in enough seeds, and did not."""
    return [name for name in _expected() if not struck.get(name)]


def _expected() -> Iterator[str]:
    yield from (*FAULTS, *DEGRADED_POINTS)
    for point in sorted(POINTS - set(UNREACHED)):
        yield passed(point)
        yield from (f"{action} {point}" for action in _actions(point))


def _actions(point: str) -> tuple[str, ...]:
    return ("kill", "stop") if point.startswith(REFRESH) else ("kill",)


def table(struck: Counter[str]) -> list[str]:
    """How often each fault struck, and what became of those who passed each point."""
    lines = ["struck    fault"]
    lines += [f"{struck[name]:7,d}   {name}: {words}" for name, words in (FAULTS | DEGRADED_POINTS).items()]
    lines += ["passed    fault point"]
    for point in sorted(POINTS):
        ended = [f"{struck[f'{action} {point}']} {ENDED[action]}" for action in _actions(point)]
        result = f"cannot be reached: {UNREACHED[point]}" if point in UNREACHED else ", ".join(ended)
        lines.append(f"{struck[passed(point)]:7,d}   {point}: {result}")
    return lines
