"""The files of this project as the lint tests see them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "src/fairlead"
_NOT_OURS = {".git", ".venv", ".fairlead", "__pycache__", "build", "dist", "results"}


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file: *path* from the root of the project, and its text."""

    path: str
    text: str

    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    def within(self, *folders: str) -> bool:
        return any(PurePosixPath(self.path).is_relative_to(folder) for folder in folders)


Rule = Callable[[Source], Iterator[str]]
"""Yields one line per violation."""


def files(*folders: str, suffixes: tuple[str, ...] = (".py",)) -> Iterator[Path]:
    """Yield our own files below *folders* (the whole project if none), in a stable order."""
    for folder in folders or (".",):
        for path in sorted((ROOT / folder).rglob("*")):
            parts = path.relative_to(ROOT).parts
            hidden_cache = any(part in _NOT_OURS or part.endswith(("_cache", ".egg-info")) for part in parts)
            if path.suffix in suffixes and path.is_file() and not hidden_cache and ".hypothesis" not in parts:
                yield path


def sources(*folders: str) -> Iterator[Source]:
    """Yield our Python files below *folders*."""
    for path in files(*folders):
        yield Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def findings(rule: Rule, *folders: str) -> list[str]:
    """Return every violation of *rule* below *folders*."""
    return [finding for source in sources(*folders) for finding in rule(source)]


def planted(rule: Rule, text: str, path: str = f"{PACKAGE}/engine/planted.py") -> list[str]:
    """Return the violations of *rule* in a file of *text* at *path*, as a planted one."""
    return list(rule(Source(path, text)))
