"""``python -m tools.promises``: write docs/reliability.md and docs/figures.md from the results in results/.

A promise covers every experiment that the catalogue names for it, also those without a figure of their own.
Broken ones come first. An experiment without a full run at any commit is "not run yet".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.catalogue import CATALOGUE, experiment
from tools import figures
from tools.promise import Promise, is_harmed, load
from tools.results import ROOT, Line, proofs, read

PAGE = ROOT / "docs/reliability.md"
PROMISES = load()
BEGIN, END = "<!-- promises -->", "<!-- /promises -->"
NOT_YET = "not run yet"
SOAK = "E52"  # takes long, so it has a command of its own


@dataclass(frozen=True, slots=True)
class Section:
    """What the results say about one promise."""

    promise: Promise
    figures: Sequence[str]
    commits: str
    commands: str

    def __str__(self) -> str:
        rows = "".join(f"- {figure}\n" for figure in self.figures) or "- no figure yet\n"
        id, says = self.promise.id, self.promise.says.removesuffix(".")
        return (
            f'<a id="{id.lower()}"></a>\n\n### {id}. {says}\n\n'
            f"{rows}\n**Limits:** {self.promise.limit}\n\n"
            f"Shown by {self.commands}; commits: {self.commits}\n\n"
        )


def section(promise: Promise, lines: Sequence[Line]) -> Section:
    """Return what *lines* say about *promise*."""
    results = {name: proofs(lines, name) for name in experiments(promise)}
    lines_of_parts = ([line for name in part.experiments for line in results[name]] for part in promise.parts)
    all_figures = [part.figure(of_part) for part, of_part in zip(promise.parts, lines_of_parts, strict=True)]
    commits = sorted({line.get("commit", "unknown")[:7] for of_name in results.values() for line in of_name})
    broken = [name for name, of_name in results.items() if any(map(is_harmed, of_name))]
    says = [f"**broken: {', '.join(broken)}**"] if broken else []
    says += [_sentence(*figure) for figure in all_figures if figure is not None]
    when = [", ".join(commits), *_missing(results)] if commits else [NOT_YET]
    return Section(promise, says, "; ".join(when), _commands(promise))


def experiments(promise: Promise) -> list[str]:
    """Return the experiments with a figure of *promise*, and those that the catalogue names for it."""
    ids = {entry.id for entry in CATALOGUE if promise.id in entry.promises}
    return sorted(ids.union(*(part.experiments for part in promise.parts)))


def missing_counters(lines: Sequence[Line]) -> list[str]:
    """Return what a promise needs from an experiment that ran in full, and no line of it has."""
    return [
        f"{promise.id} asks {name} for {' or '.join(part.required)} of {' or '.join(part.of)}"
        f"{f' of {part.part}' if part.part else ''}: no line has it"
        for promise in PROMISES
        for part in promise.parts
        for name in part.experiments
        if (proven := proofs(lines, name)) and not any(map(part.is_reported_by, proven))
    ]


def _sentence(words: str, n: str, most: str) -> str:
    """Return a figure with its n, and beside a zero the most it may be."""
    return f"{words} (n = {n}{'' if most == '–' else f', 3/n = {most}'})"


def _missing(results: Mapping[str, Sequence[Line]]) -> list[str]:
    """Return which experiments gave nothing, and why."""
    missing = [name for name, lines in results.items() if not lines]
    absent = {name: entry.absent for name in missing if (entry := experiment(name)) and entry.absent}
    due = [name for name in missing if name not in absent]
    return ([f"{', '.join(due)} {NOT_YET}"] if due else []) + [
        f"{name}: {why}" for name, why in absent.items()
    ]


def _commands(promise: Promise) -> str:
    """Return what runs each of its experiments that exist."""
    existing = [entry for name in experiments(promise) if (entry := experiment(name)) and entry.files]
    faults = " or ".join(entry.id for entry in existing if entry.id != SOAK)
    commands = [promise.command] if promise.command else []
    commands += [f"`make faults ARGS=\"-k '{faults}'\"`"] if faults else []
    commands += ["`make soak`"] if any(entry.id == SOAK for entry in existing) else []
    return ", ".join(commands)


def written(page: str, lines: Sequence[Line]) -> str:
    """Return *page* with the promises as *lines* have them."""
    sections = "".join(str(section(promise, lines)) for promise in PROMISES)
    return figures.between(page, BEGIN, END, f"\n{sections}")


def main(page: Path = PAGE, experiments_page: Path = figures.PAGE) -> None:
    """Write both pages."""
    lines = read()
    page.write_text(written(page.read_text("utf-8"), lines), "utf-8")
    experiments_page.write_text(figures.written(experiments_page.read_text("utf-8"), lines), "utf-8")


if __name__ == "__main__":
    main()
