"""A figure can be looked up: a kept line names a commit of this history, without changes on top."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterable

import pytest

from tools import results

LENGTH = 7  # of a name, at least


def not_of(history: Collection[str], lines: Iterable[results.Line]) -> list[str]:
    """Return the commits that no full name in *history* begins with."""
    commits = {str(line.get("commit", "none")) for line in lines}
    begins = {commit[:length] for length in set(map(len, commits)) if length >= LENGTH for commit in history}
    return sorted(commits - begins)


def git(*words: str) -> str:
    done = subprocess.run(["git", "-C", results.ROOT, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def test_each_kept_line_names_a_commit_of_this_history() -> None:
    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("the history is not here: no repository, or a shallow one")
    assert not_of(git("rev-list", "HEAD").split(), results.read()) == []


@pytest.mark.parametrize("wrong", ["2eb1ddd27986", "4c6a0d91e3b2+", "4c6a0d", "unknown", "none"])
def test_another_one_is_found(wrong: str) -> None:
    history = ["4c6a0d91e3b2f5d8a7c6b5e4f3d2c1b0a9f8e7d6"]
    lines = [{"commit": "4c6a0d91e3b2"}, {"commit": "4c6a0d9"}, {} if wrong == "none" else {"commit": wrong}]
    assert not_of(history, lines) == [wrong]
