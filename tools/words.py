"""Measure how plain names and sentences are: ``python -m tools.words [--json] [--list PACKAGE] [PATH ...]``.

bound        names that are a bare participle or pronoun
`who`        `who`, `whom`, `whose`, `whoever` for 1,000 words of docstrings, comments, SQL, Lua and docs
`tell`       `tell`, `told`, `hear`, `heard` for 1,000 words
you          `you` and `your` for 1,000 words of tutorial, how-to, explanation, reference and README.md
imperative   % of function docstrings that begin with an imperative verb (properties aside)
instants     names in `_s` that hold an instant, and names in `_at` that hold a duration
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from tools.wording import RULES, Count, count

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = ("src/fairlead", "tools", "bench", "docs", *sorted(path.name for path in ROOT.glob("*.md")))
SUFFIXES = (".py", ".sql", ".lua", ".toml", ".md")
ADDRESSED = ("docs/tutorial", "docs/how-to", "docs/explanation", "docs/reference", "README.md")
"""Pages that speak to their reader. Decisions and design notes are about the project."""


def files(paths: Iterable[str]) -> Iterator[str]:
    """Yield our own text files at and below *paths*, relative to the root of the project."""
    for path in paths:
        start = (ROOT / path).resolve()
        for file in sorted(start.rglob("*")) if start.is_dir() else [start]:
            if file.suffix in SUFFIXES and "__pycache__" not in file.parts:
                yield file.relative_to(ROOT).as_posix()


def package(path: str) -> str:
    """Return the package that *path* belongs to: two folders below `fairlead`, one folder elsewhere."""
    folders = PurePosixPath(path).parts[:-1]
    if folders[:2] == ("src", "fairlead"):
        return "/".join(folders[:4]) if len(folders) > 2 else path
    return "/".join(folders[:2]) or path


def measure(paths: Iterable[str] = DEFAULT) -> dict[str, Count]:
    """Return the figures of each package at and below *paths*."""
    packages: dict[str, Count] = {}
    for path in files(paths):
        figures = count(path, (ROOT / path).read_text(encoding="utf-8"))
        packages.setdefault(package(path), Count()).add(figures)
    return dict(sorted(packages.items()))


def is_addressed(name: str) -> bool:
    """Return whether the package *name* holds pages that speak to their reader."""
    return any(PurePosixPath(name).is_relative_to(folder) for folder in ADDRESSED)


def total(packages: dict[str, Count]) -> Count:
    """Return the figures of all *packages* together."""
    figures = Count()
    for other in packages.values():
        figures.add(other)
    return figures


def row(packages: dict[str, Count]) -> dict[str, float]:
    """Return the published figures of *packages* together."""
    figures = total(packages)
    pages = total({name: other for name, other in packages.items() if is_addressed(name)})
    imperative = figures.docstrings - figures.of("docstrings")
    return {
        "bound": figures.of("bound"),
        "bound_percent": round(100 * figures.of("bound") / max(figures.names, 1), 2),
        "who": round(figures.per_thousand(figures.of("who")), 2),
        "tell": round(figures.per_thousand(figures.of("tell")), 2),
        "you": round(pages.per_thousand(pages.you), 1),
        "imperative": round(100 * imperative / figures.docstrings, 1) if figures.docstrings else 100.0,
        "instants": figures.of("instants"),
    }


def table(packages: dict[str, Count]) -> Iterator[str]:
    """Yield a line for each of *packages*, and one for all."""
    rows = {name: row({name: figures}) for name, figures in packages.items()} | {"total": row(packages)}
    yield f"{'package':<38}" + "".join(f"{title:>{len(title) + 3}}" for title in rows["total"])
    for name, figures in rows.items():
        cells = figures if name == "total" or is_addressed(name) else figures | {"you": "-"}
        yield f"{name:<38}" + "".join(f"{cells[title]!s:>{len(title) + 3}}" for title in figures)


def ceilings(packages: dict[str, Count]) -> Iterator[str]:
    """Yield the rows of the table in tests/lint/test_words.py for the packages that are not clean yet."""
    for name, figures in packages.items():
        if figures.findings:
            yield f'    "{name}": ({", ".join(str(figures.of(rule)) for rule in RULES)}),'


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="tools.words", description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", metavar="PATH", default=DEFAULT)
    parser.add_argument("--json", action="store_true", help="one JSON object: totals, and packages by name")
    parser.add_argument("--list", metavar="PACKAGE", help="every finding in PACKAGE and below it")
    parser.add_argument("--rule", choices=RULES, help="with --list: only findings of this rule")
    parser.add_argument("--ceilings", action="store_true", help="the table of tests/lint/test_words.py")
    options = parser.parse_args()
    packages = measure(options.paths)
    if options.list:
        lines = [
            str(finding)
            for finding in sorted(total(packages).findings)
            if PurePosixPath(finding.path).is_relative_to(options.list)
            and options.rule in (None, finding.rule)
        ]
    elif options.json:
        rows = {name: row({name: figures}) for name, figures in packages.items()}
        lines = [json.dumps({"totals": row(packages), "packages": rows}, indent=2)]
    else:
        lines = list(ceilings(packages) if options.ceilings else table(packages))
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
