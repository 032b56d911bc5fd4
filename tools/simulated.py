"""The rows of the simulation in docs/figures.md, from results/simulation.json."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools.promise import share
from tools.results import Line, proofs

HEALTHY = "a fleet in simulated time, with some of thirty faults in each seed: what must hold (I1–I12) holds"
ABLATED = "the same fleet without one of its safeguards: the invariant behind it is seen to break"
NOT_YET = "not run yet"


def written(page: str, lines: Sequence[Line]) -> str:
    """Return *page* with its two rows from *lines*. Raise ValueError if it has no such row."""
    results = {line["test"]: line for line in proofs(lines, "simulation")}
    for title, figure, command in (
        (HEALTHY, _healthy(results.get("seeds"), results.get("same")), "make simulate"),
        (ABLATED, _ablated(results.get("ablations")), "make simulate-ablations"),
    ):
        row = f"| {title} | {figure} | `{command}` |"
        page, count = re.subn(rf"^\| {re.escape(title)} \|.*$", lambda _, row=row: row, page, flags=re.M)
        if count != 1:
            raise ValueError(f"there are {count} rows that begin with {title!r}")
    return page


def _healthy(seeds: Line | None, same: Line | None) -> str:
    if seeds is None:
        return NOT_YET
    harm = f"**broken**: {seeds['broken']}" if seeds["broken"] else f"0 broken (3/n = {share(seeds['3/n'])})"
    sentences = [f"{seeds['n']} seeds, {seeds['steps']:,} steps: {harm}, in {seeds['seconds']:.0f} s"]
    if same is not None:
        of = f"{same['n']} seeds that between them have every fault"
        sentences.append(f"{of}: {same['differ']} differ between {same['interpreters']} fresh interpreters")
    return f"{'; '.join(sentences)} ({_around(seeds)}; goal 60 s)"


def _ablated(line: Line | None) -> str:
    if line is None:
        return NOT_YET
    rare = [
        f"{ablation['lacks']}: {ablation['seed']}"
        for ablation in line["found"]
        if ablation["seed"] >= line["seeds"]
    ]
    exceptions = f" and those that are known for it ({', '.join(rare)})" if rare else ""
    caught = f"{line['caught']} of {line['n']} found within {line['seeds']} seeds{exceptions}"
    harm = "" if line["caught"] == line["n"] else "**broken**: "
    by = sorted({ablation["breaks"] for ablation in line["found"]}, key=lambda name: int(name[1:]))
    return f"{harm}{caught}, by {', '.join(by)}, in {line['seconds']:.0f} s ({_around(line)})"


def _around(line: Line) -> str:
    return f"{line['machine']['cores']} cores, commit {line['commit']}"
