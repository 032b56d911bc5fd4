"""What never happened is told: a fault that meets nobody, a place in the code that nobody passes."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from fairlead._core.faultpoint import POINTS
from tests.simulation import strikes
from tests.simulation.__main__ import main
from tests.simulation.swarm import FAULTS


def everything() -> Counter[str]:
    struck = Counter(dict.fromkeys((*FAULTS, *strikes.DEGRADED_POINTS), 1))
    for point in POINTS - set(strikes.UNREACHED):
        struck.update((strikes.passed(point), f"kill {point}", f"stop {point}"))
    return struck


def test_all_that_happened_is_no_complaint() -> None:
    assert strikes.never(everything()) == []


@pytest.mark.parametrize(
    "name",
    [
        "kill",
        "redis_away one",
        "pass job.after_claim",
        "kill schedule_run.after_take",
        "stop token.after_sent",
    ],
)
def test_fault_that_never_struck_is_found(name: str) -> None:
    struck = everything()
    del struck[name]
    assert strikes.never(struck) == [name]


def test_unreachable_point_says_why_and_is_a_point() -> None:
    assert set(strikes.UNREACHED) < POINTS
    (line,) = (line for line in strikes.table(Counter()) if "job.within_ack" in line)
    assert "the store on PostgreSQL" in line


def test_the_table_names_every_fault_and_every_point() -> None:
    text = "\n".join(strikes.table(everything()))
    assert all(f"   {name}: " in text for name in (*FAULTS, *strikes.DEGRADED_POINTS, *POINTS))
    assert "token.after_sent: 1 killed there, 1 stopped there" in text


@pytest.mark.slow
def test_enough_seeds_in_which_something_never_happened_are_a_breach(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--seeds", "1", "--from", "1", "--processes", "1"]
    assert main(arguments) == 0
    assert "never happened" not in capsys.readouterr().out
    monkeypatch.setattr(strikes, "ENOUGH", 1)
    assert main(arguments) == 1
    assert "never happened: " in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 1
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["never"]
    assert summary["struck"]["pass job.after_claim"] > 0
    assert main([*arguments, "--without", "kill"]) == 0, "what was left out cannot have happened"
