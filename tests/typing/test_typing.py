"""The public API is typed as its users are told (STYLE D, typing)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def mypy(*files: Path) -> str:
    """What mypy says of *files*, strict, in their own settings' words."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--follow-imports", "silent"]
    done = subprocess.run(
        [*command, *map(str, files)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    return done.stdout + done.stderr


def test_users_see_the_types_they_need(tmp_path: Path) -> None:
    """One run for both: the file as users write it has no error, a copy with a wrong type has one."""
    planted = (HERE / "jobs.py").read_text().replace('note="x"), str)', 'note="x"), int)')
    (tmp_path / "planted.py").write_text(planted)
    errors = mypy(HERE / "jobs.py", tmp_path / "planted.py").splitlines()
    assert len(errors) == 1, errors
    assert "planted.py" in errors[0]
    assert "assert-type" in errors[0]
