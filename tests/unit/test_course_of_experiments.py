"""An experiment that fails in its set-up, hangs or is killed leaves a line that says so; no other does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import results

HOOKS = "from tests.faults.conftest import pytest_runtest_makereport, pytest_runtest_setup  # noqa: F401\n"
EXPERIMENT = """
import os, signal
import pytest
from tests.faults.support.report import Figures

@pytest.fixture
def ground():
    assert how != "no ground", "no ground"
    yield
    assert how != "dirt is left", "dirt is left"

def test_E03_a(ground):
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "skipped":
        pytest.skip("no reason")
    assert how != "before it has figures", how
    figures = Figures("E03")
    assert how != "on its way", how
    figures.zero(stale_accepted=int(how == "harm"))
    figures.conclude()
"""


def ran(folder: Path, how: str) -> list[dict[str, Any]]:
    """The lines that are kept after the experiment ran like that, beside those of earlier runs."""
    (folder / "conftest.py").write_text(HOOKS)
    (folder / "test_e03_a.py").write_text(f"how = {how!r}\n{EXPERIMENT}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(folder)]
    around = os.environ | {"FAIRLEAD_RESULTS": str(folder / "kept"), "PYTHONPATH": str(results.ROOT)}
    subprocess.run(command, cwd=folder, env=around, capture_output=True, timeout=60.0, check=False)
    return results.read(folder / "kept")


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("no ground", "setup: AssertionError: no ground"),
        ("killed", "begun, and never ended"),
        ("before it has figures", "AssertionError: before it has figures"),
        ("dirt is left", "teardown: AssertionError: dirt is left"),
        ("on its way", "AssertionError: on its way"),
        ("harm", "stale_accepted = 1"),
    ],
)
@pytest.mark.slow
def test_experiment_that_does_not_conclude_is_broken(tmp_path: Path, how: str, expected: str) -> None:
    broken = [line for line in ran(tmp_path, how) if line["verdict"] == "broken"]
    assert [(line["id"], line["test"]) for line in broken] == [("E03", "test_E03_a")]
    assert broken[0]["broken"][0].startswith(expected)


@pytest.mark.slow
def test_experiment_that_ends_leaves_one_line(tmp_path: Path) -> None:
    assert [line["verdict"] for line in ran(tmp_path, "killed")] == ["broken"]
    (line,) = ran(tmp_path, "well")
    assert (line["verdict"], line["zeros"]) == ("holds", ["stale_accepted"])
    assert ran(tmp_path, "skipped") == [line]
