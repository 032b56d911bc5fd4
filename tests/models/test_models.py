"""The protocols as Promela models: each holds in every order of steps, and breaks without any safeguard.

spin turns a model into a C program that walks all its states. Conditional lines (``#ifdef NAME``) leave one
safeguard out each and serve nothing else, so there is none whose loss was not seen to break.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lint.tree import ROOT
from tests.support.tools import needs

MODELS = sorted(Path(__file__).parent.glob("*.pml"))
PAGE = ROOT / "docs/explanation/models.md"
_SWITCH = re.compile(r"^#(?:ifn?def |elif defined\()(\w+)", re.MULTILINE)
_STATES = re.compile(r"^\s*(\d+) states, stored", re.MULTILINE)
_BROKEN = re.compile(r"^pan:1: (.*?) \(at depth", re.MULTILINE)
_UNREACHED = re.compile(r"^\t\S+:(\d+), state \d+, \"(?!-end-)(.*)\"", re.MULTILINE)
_STEPS = 1_000_000

needs_spin = needs("spin", "gcc")


def safeguards(model: Path) -> list[str]:
    """Those of *model*, each by the name under which it is left out."""
    return sorted(set(_SWITCH.findall(model.read_text("utf-8"))))


@dataclass(frozen=True)
class Walk:
    """What came of walking all states: how many, what broke first, and what nothing ever came to."""

    states: int
    broken: str
    unreached: list[tuple[str, str]]


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def walk(model: Path, folder: Path, *left_out: str) -> Walk:
    """Every state of *model* without the safeguards *left_out*; raises where not all can be walked."""
    _run(folder, "spin", *(f"-D{name}" for name in left_out), "-a", str(model))
    _run(folder, "gcc", "-O1", "-w", "-DSAFETY", "-DMEMLIM=1024", "-o", "pan", "pan.c")
    told = _run(folder, "./pan", f"-m{_STEPS}")
    states, broken = _STATES.search(told), _BROKEN.search(told)
    assert states is not None, told
    if broken is None:
        assert "errors: 0" in told, told
        assert "max search depth too small" not in told, told
        assert "Search not completed" not in told, told
    return Walk(int(states[1]), broken[1] if broken else "", _UNREACHED.findall(told))


def _version() -> str:
    told = subprocess.run(["spin", "-V"], capture_output=True, text=True, timeout=10, check=False)
    return told.stdout.split()[2]


def _told_version(page: str) -> str:
    found = re.search(r"figures are of spin ([\d.]*\d)", page)
    assert found is not None
    return found[1]


def _row(page: str, model: str) -> str:
    """The line of *model* in the table of states."""
    return next(line for line in page.splitlines() if line.startswith(f"| `{model}` |"))


@needs_spin
@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_model_holds_in_every_state(model: Path, tmp_path: Path) -> None:
    done = walk(model, tmp_path)
    print(f"\n{model.stem}: {done.states} states, 0 errors")
    assert done.broken == ""
    assert done.unreached == []  # what no process can do is not shown to be harmless
    page = PAGE.read_text("utf-8")
    if _told_version(page) == _version():  # another one may leave other states out
        assert f"| {done.states:,} |" in _row(page, model.stem)


@needs_spin
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "left_out"),
    [pytest.param(model, name, id=f"{model.stem}-{name}") for model in MODELS for name in safeguards(model)],
)
def test_without_a_safeguard_it_breaks(model: Path, left_out: str, tmp_path: Path) -> None:
    done = walk(model, tmp_path, left_out)
    print(f"\n{model.stem}, {left_out}: {done.broken}")
    assert done.broken


def test_the_page_names_each_model_and_each_safeguard() -> None:
    page = PAGE.read_text("utf-8")
    names = [model.stem for model in MODELS] + [name for model in MODELS for name in safeguards(model)]
    assert len(names) > len(MODELS)
    assert [name for name in names if f"`{name}`" not in page] == []
