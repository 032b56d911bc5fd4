"""The public API is typed as its users are told (STYLE D, typing)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def mypy(*files: Path) -> str:
    """What mypy says of *files*, strict, in their own settings' words."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--follow-imports", "silent"]
    done = subprocess.run(
        [*command, *map(str, files)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_users_see_the_types_they_need() -> None:
    assert mypy(HERE / "jobs.py") == ""


@pytest.mark.slow
def test_it_bites(tmp_path: Path) -> None:
    planted = (HERE / "jobs.py").read_text().replace('note="x"), str)', 'note="x"), int)')
    (tmp_path / "planted.py").write_text(planted)
    told = mypy(tmp_path / "planted.py")
    assert "assert-type" in told
    assert len(told.splitlines()) == 1
