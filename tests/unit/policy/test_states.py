"""The tables of policy/jobs/states.py, their pictures in docs/states.md, and the schema's words are one."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from fairlead.policy.failures.category import Category
from fairlead.policy.jobs.states import (
    CREDENTIAL,
    DEAD_LETTER,
    JOB,
    LANE,
    ROTATION,
    CredentialState,
    DeadLetterStatus,
    JobState,
    LaneState,
    Machine,
    Resolution,
    RotationPhase,
    Transition,
)

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/states.md").read_text("utf-8")
_SECTION = re.compile(r"^#+ [^\n]*`([\w.]+)`\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
_ARROW = re.compile(r"^    (\S+) --> (\S+): (\w+)$", re.MULTILINE)
SECTIONS = dict(_SECTION.findall(PAGE))

MACHINES: dict[str, Machine[Any]] = {
    "lane.state": LANE,
    "job.state": JOB,
    "credential.state": CREDENTIAL,
    "refresh_attempt.phase": ROTATION,
    "dead_letter.status": DEAD_LETTER,
}
WORDS: dict[str, type[StrEnum]] = {
    "job.state": JobState,
    "lane.state": LaneState,
    "credential.state": CredentialState,
    "refresh_attempt.phase": RotationPhase,
    "dead_letter.status": DeadLetterStatus,
    "dead_letter.resolution": Resolution,
    "dead_letter.category": Category,
}


@pytest.mark.parametrize(("name", "words"), WORDS.items())
def test_the_page_explains_each_word_and_no_other(name: str, words: type[StrEnum]) -> None:
    assert re.findall(r"^\| `(\w+)` \|", SECTIONS[name], re.MULTILINE) == [word.value for word in words]


@pytest.mark.parametrize(("name", "machine"), MACHINES.items())
def test_the_page_draws_each_arrow_and_no_other(name: str, machine: Machine[Any]) -> None:
    picture = SECTIONS[name].split("```mermaid\nstateDiagram-v2\n")[1].split("```")[0]
    drawn = [
        (None if source == "[*]" else source, event, None if target == "[*]" else target)
        for source, target, event in _ARROW.findall(picture)
    ]
    assert len(drawn) == len(picture.splitlines())
    assert drawn == [(arrow.source, arrow.event, arrow.target) for arrow in machine.transitions]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_each_state_is_reached_from_nothing_and_left(machine: Machine[Any]) -> None:
    reached: set[StrEnum | None] = {None}
    for _ in machine.transitions:
        reached |= {arrow.target for arrow in machine.transitions if arrow.source in reached}
    states: type[StrEnum] = machine.states
    assert reached == {None, *states}
    assert {arrow.source for arrow in machine.transitions} == reached


def test_a_machine_answers_and_refuses() -> None:
    assert JOB.state_after(None, "enqueue") is JobState.AVAILABLE
    assert JOB.state_after(JobState.RUNNING, "snooze") is JobState.AVAILABLE
    assert JOB.state_after(JobState.COMPLETED, "prune") is None
    with pytest.raises(ValueError, match=r"'claim' cannot happen to completed hint: .*prune"):
        JOB.state_after(JobState.COMPLETED, "claim")
    with pytest.raises(ValueError, match="no row"):
        JOB.state_after(None, "claim")


def test_an_event_leads_to_one_state() -> None:
    with pytest.raises(ValueError, match="two arrows"):
        Machine(JobState, (None, "go", JobState.RUNNING), (None, "go", JobState.AVAILABLE))


def test_the_rules_that_matter_most() -> None:
    """A change of these tables that breaks a ruling must be seen."""
    sent = {arrow.source for arrow in ROTATION.transitions if arrow.target is RotationPhase.SENT}
    assert sent == {RotationPhase.INTENT, RotationPhase.SENT}  # R6: nothing leaves without a mark of its own
    assert Transition(RotationPhase.SENT, "take_over", RotationPhase.INTENT) not in ROTATION.transitions  # R7
    closed = set(DeadLetterStatus) - {DeadLetterStatus.PENDING_REVIEW}
    assert {arrow.event for arrow in DEAD_LETTER.transitions if arrow.source in closed} == {"prune"}
    to_running = {arrow.event for arrow in JOB.transitions if arrow.target is JobState.RUNNING}
    assert to_running == {"claim"}  # every run has a fence (R1)
    revoked = {arrow.event for arrow in CREDENTIAL.transitions if arrow.source is CredentialState.REVOKED}
    assert "settle" not in revoked  # what was ended on purpose is not healed by a late answer
