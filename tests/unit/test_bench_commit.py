"""A figure names the commit that its process began with, not one that came while it ran."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.report import commit

AS = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *AS, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def committed(folder: Path, name: str, text: str) -> str:
    """A commit that writes *text* to the file *name*; its short name."""
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    git(folder, "add", name)
    git(folder, "commit", "-q", "-m", text)
    return git(folder, "rev-parse", "--short=12", "HEAD")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    committed(tmp_path, "code.py", "before")
    return tmp_path


def test_code_that_was_committed_meanwhile_is_told(tree: Path) -> None:
    first = commit(tree)
    later = committed(tree, "code.py", "after")
    assert later != first
    assert commit(tree) == f"{first}+"


def test_figures_that_were_committed_meanwhile_change_nothing(tree: Path) -> None:
    first = commit(tree)
    assert not first.endswith("+")
    committed(tree, "results/E01.json", "found")
    assert commit(tree) == first


def test_a_tree_that_was_changed_at_first_stays_changed(tree: Path) -> None:
    (tree / "code.py").write_text("tried")
    assert commit(tree).endswith("+")
    git(tree, "checkout", "-q", "code.py")
    assert commit(tree).endswith("+")


def test_a_new_file_is_a_change(tree: Path) -> None:
    first = commit(tree)
    (tree / "new.py").write_text("tried")
    assert commit(tree) == f"{first}+"


def test_without_a_repository_it_is_unknown(tmp_path: Path) -> None:
    assert commit(tmp_path / "nowhere") == "unknown"
