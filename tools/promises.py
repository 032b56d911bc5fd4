"""``python -m tools.promises``: README's promises and docs/figures.md, made from what was found (results/).

A row speaks for every experiment that the catalogue names for its promise, also for those without a figure in
it: what is broken comes first, and who gave nothing in full size at any commit is "not run yet".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.faults.catalogue import CATALOGUE, experiment
from tools import figures
from tools.promise import Promise, is_harmed
from tools.promised import PROMISES
from tools.results import ROOT, Line, proofs, read

README = ROOT / "README.md"
BEGIN, END = "<!-- promises -->", "<!-- /promises -->"
NOT_YET = "not run yet"
SOAK = "E52"  # takes long, so it has a command of its own


def table(lines: Sequence[Line]) -> str:
    """The rows of README."""
    head = "| promise | figure | commit | command | limit |\n| --- | --- | --- | --- | --- |\n"
    return head + "".join(f"| {' | '.join(_cells(promise, lines))} |\n" for promise in PROMISES)


def experiments(promise: Promise) -> list[str]:
    """Those that have a figure in its row, and those that the catalogue names for it."""
    named = {each.id for each in CATALOGUE if promise.id in each.promises}
    return sorted(named.union(*(part.experiments for part in promise.parts)))


def untold(lines: Sequence[Line]) -> list[str]:
    """What a promise asks of an experiment that was run in full, and no line of it tells."""
    return [
        f"{promise.id} asks {name} for {' or '.join(part.asked)} of {' or '.join(part.of)}"
        f"{f' of {part.what}' if part.what else ''}: no line tells it"
        for promise in PROMISES
        for part in promise.parts
        for name in part.experiments
        if (found := proofs(lines, name)) and not any(map(part.is_told_by, found))
    ]


def _cells(promise: Promise, lines: Sequence[Line]) -> list[str]:
    found = {name: proofs(lines, name) for name in experiments(promise)}
    told = [part.told([line for name in part.experiments for line in found[name]]) for part in promise.parts]
    figures = [figure for figure in told if figure is not None]
    commits = {line.get("commit", "unknown") for ours in found.values() for line in ours}
    broken = [name for name, ours in found.items() if any(map(is_harmed, ours))]
    says = [f"**broken: {', '.join(broken)}**"] if broken else []
    says += [_said(*figure) for figure in figures]
    when = [", ".join(sorted(commit[:7] for commit in commits))] if commits else []
    when += _missing(found) if commits else [NOT_YET]
    told_by = (f"{promise.id} {promise.says}", "<br>".join(says) or "–", "; ".join(when))
    return [*told_by, _commands(promise), promise.limit]


def _said(words: str, n: str, most: str) -> str:
    """A figure with its n, and beside a zero the most it may be."""
    return f"{words} (n = {n}{'' if most == '–' else f', 3/n = {most}'})"


def _missing(found: Mapping[str, Sequence[Line]]) -> list[str]:
    """Which experiments gave nothing, and why."""
    missing = [name for name, lines in found.items() if not lines]
    absent = {name: each.absent for name in missing if (each := experiment(name)) and each.absent}
    due = [name for name in missing if name not in absent]
    return ([f"{', '.join(due)} {NOT_YET}"] if due else []) + [
        f"{name}: {why}" for name, why in absent.items()
    ]


def _commands(promise: Promise) -> str:
    """What runs each of its experiments that there is."""
    known = [each for name in experiments(promise) if (each := experiment(name)) and each.files]
    faults = " or ".join(each.id for each in known if each.id != SOAK)
    commands = [promise.command] if promise.command else []
    commands += [f"`make faults ARGS=\"-k '{faults}'\"`"] if faults else []
    commands += ["`make soak`"] if any(each.id == SOAK for each in known) else []
    return ", ".join(commands)


def written(readme: str, lines: Sequence[Line]) -> str:
    """*readme* with the table as *lines* have it."""
    return figures.between(readme, BEGIN, END, table(lines))


def main(readme: Path = README, page: Path = figures.PAGE) -> None:
    """Write README and the page of figures."""
    lines = read()
    readme.write_text(written(readme.read_text("utf-8"), lines), "utf-8")
    page.write_text(figures.written(page.read_text("utf-8"), lines), "utf-8")


if __name__ == "__main__":
    main()
