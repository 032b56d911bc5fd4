"""Nothing in the tree shows where it was written: no home folders, no address of a package index."""

from __future__ import annotations

import re

import pytest

from tests.lint.tree import ROOT, files

_TEXT = (
    ".cfg",
    ".html",
    ".ini",
    ".json",
    ".lua",
    ".md",
    ".py",
    ".sh",
    ".sql",
    ".toml",
    ".txt",
    ".yaml",
    ".yml",
    "",
)
_HOME = re.compile(r"(?<![\w.~-])/(home/[a-z_]|Users/[A-Za-z]|root/|work/|mnt/|opt/)")
_LOCKED = re.compile(r"#.*|[a-z0-9.-]+(\[[a-z,]+\])?==\S+( ; .*)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?")


def home_paths(text: str) -> list[str]:
    return [line for line in text.splitlines() if _HOME.search(line)]


def foreign_lines(lock: str) -> list[str]:
    return [line for line in lock.splitlines() if "://" in line or not _LOCKED.fullmatch(line)]


def test_no_path_of_a_machine() -> None:
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in files(suffixes=_TEXT)}
    assert [f"{name}: {line}" for name, text in texts.items() for line in home_paths(text)] == []


def test_the_lock_holds_versions_and_hashes_only() -> None:
    for path in files("requirements", suffixes=(".txt",)):
        assert foreign_lines(path.read_text()) == []


@pytest.mark.parametrize("line", ["see {}home/ann/x", "'{}Users/ann'", "cd {}root/src", "({}opt/wheels)"])
def test_home_paths_are_found(line: str) -> None:
    line = line.format("/")  # this file, too, holds no such path
    assert home_paths(f"a\n{line}\nb") == [line]


def test_other_paths_are_left_alone() -> None:
    others = (
        "src{0}home{0}x.py ~{0}work{0} {0}run{0}fairlead.sock https:{0}{0}example.org{0}home{0}x .{0}opt{0}"
    )
    assert home_paths(others.format("/")) == []


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://pypi.example/simple",
        "--find-links /x",
        "a @ file:///x",
        "# from http://x",
        "a==1.0",
    ],
)
def test_foreign_lines_are_found(line: str) -> None:
    digest = "0" * 64
    assert foreign_lines(f"a==1.0 ; python_version < '3.12' \\\n    --hash=sha256:{digest}\n{line}") == [line]
