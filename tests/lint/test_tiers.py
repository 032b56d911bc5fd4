"""Every test is in one tier, CI runs each tier of a push once, and the unit tier starts no server."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests import tiers
from tests.lint.tree import ROOT
from tests.tiers import ABLATION, ROWS, SERVERS, TESTS, Case, Tier, tier_of, tiers_in

_TARGET = re.compile(r"^([a-z-]+):.*\n((?:\t.*\n)*)", re.MULTILINE)


def targets(makefile: str) -> dict[str, list[Tier]]:
    """Return the tiers that each target of *makefile* runs."""
    recipes = {name: re.findall(r"--tier (\S+)", recipe) for name, recipe in _TARGET.findall(makefile)}
    return {
        name: [Tier(word) for words in words for word in words.split(",")] for name, words in recipes.items()
    }


def is_missing(named: str, folder: Path) -> bool:
    """Return whether a row names a file, or a test of it, that is not there."""
    file, _, test = named.partition("::")
    return not (folder / file).is_file() or f"def {test}" not in (folder / file).read_text("utf-8")


def test_each_folder_of_tests_is_in_a_row() -> None:
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert {folder for folder in folders if not tiers_in(folder)} == set()
    with pytest.raises(pytest.UsageError, match="tests/planted is in no row"):
        tier_of(Case("planted", "test_a.py", "test_a", frozenset()))


def test_rows_name_tests_that_exist() -> None:
    named = [(name, TESTS / folder) for row in ROWS for folder in row.folders for name in row.tests]
    assert [name for name, folder in named if is_missing(name, folder)] == []
    assert is_missing("test_planted.py", TESTS / "lint")
    assert is_missing("test_tiers.py::test_" + "planted", TESTS / "lint")


def test_ci_runs_every_tier_but_nightly_once() -> None:
    run = targets((ROOT / "Makefile").read_text("utf-8"))
    ours = re.search(r"^exec make (.*)$", (ROOT / ".ci/run").read_text("utf-8"), re.MULTILINE)
    assert ours is not None
    counts = Counter(tier for target in ours[1].split() for tier in run[target])
    assert counts == dict.fromkeys(set(Tier) - {Tier.NIGHTLY}, 1)
    assert run["test-unit"] == [Tier.UNIT]
    assert run["test-nightly"] == [Tier.NIGHTLY]


@pytest.mark.parametrize(
    ("case", "tier"),
    [
        (Case("contract", "test_caps.py", "test_a", frozenset({"stores", "memory"})), Tier.UNIT),
        (Case("contract", "test_caps.py", "test_a", frozenset({"stores", "postgres"})), Tier.MAIN),
        (Case("contract", "test_caps.py", "test_a", frozenset({"memory", "@slow"})), Tier.SLOW),
        (Case("contract", "test_gate_slots.py", "test_a", frozenset({"timed", "valkey_cluster"})), Tier.SLOW),
        (Case("faults", "test_e03_zombie.py", "test_E03_zombie", frozenset({"@slow"})), Tier.MAIN),
        (Case("faults", "test_e03_zombie.py", "test_E03_a", frozenset({"@slow", ABLATION})), Tier.NIGHTLY),
        (Case("faults", "test_e04_blocked_loop.py", "test_E04_a", frozenset({"@slow"})), Tier.SLOW),
    ],
)
def test_the_first_row_that_fits_decides(case: Case, tier: Tier) -> None:
    assert tier_of(case) is tier


@pytest.mark.parametrize("word", sorted(SERVERS))
def test_no_test_with_a_servers_fixture_is_in_the_unit_tier(word: str) -> None:
    folders = {folder for row in ROWS for folder in row.folders}
    tiers_with_server = {
        tier_of(Case(folder, "test_a.py", "test_a", frozenset({word}))) for folder in folders
    }
    assert Tier.UNIT not in tiers_with_server


@pytest.mark.parametrize("program", tiers.PROGRAMS)
def test_a_server_that_a_unit_test_starts_is_refused(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_running", Tier.UNIT)
    with pytest.raises(RuntimeError, match=f"of the unit tier starts a server: .*{program}"):
        subprocess.run([f"/nowhere/{program}"], check=False)
    monkeypatch.setattr(tiers, "_running", Tier.MAIN)
    with pytest.raises(FileNotFoundError):
        subprocess.run([f"/nowhere/{program}"], check=False)
