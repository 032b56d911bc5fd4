"""The table of experiments in docs/figures.md, from their results (results/); see `tools.promises`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.faults.catalogue import CATALOGUE, Experiment
from tools import simulated
from tools.promise import LOSSES, chances, is_harmed, share
from tools.results import ROOT, Line, base, proofs

PAGE = ROOT / "docs/figures.md"
BEGIN, END = "<!-- experiments -->", "<!-- /experiments -->"
NOT_YET = "not run yet"
CHANCES = (*LOSSES, "deaths", "n")
UNITS = {"s": "s", "ms": "ms", "mib": "MiB", "percent": "%"}
GREATEST = (
    "amplification",
    "recovery_s",
    "peak_mib",
    "max_stall_ms",
    "rate_over",
    "begun_over",
    "probes_at_once",
    "longest_lock_ms",
    "lines_per_s",
    "longest_over_s",
    "oldest_wait_s",
    "came_first_200_ms_percent",
    "run_again_of_a_lost_process",
)
"""Figures with a limit, of which the greatest is the worst. Some are one number, some one for each case."""
HEAD = "| experiment | what must hold | n | found | without its safeguard | commit |\n"


def written(page: str, lines: Sequence[Line]) -> str:
    """Return *page* with the table and the rows of the simulation from *lines*."""
    return simulated.written(between(page, BEGIN, END, table(lines)), lines)


def between(text: str, begin: str, end: str, inside: str) -> str:
    """Return *text* with *inside* between the marks *begin* and *end*. Raise ValueError if a mark is missing."""
    head, begin_mark, rest = text.partition(begin)
    _, end_mark, tail = rest.partition(end)
    if not (begin_mark and end_mark):
        raise ValueError(f"there is no {begin} ... {end}")
    return f"{head}{begin}\n{inside}{end}{tail}"


def table(lines: Sequence[Line]) -> str:
    """Return the table, with one row for each experiment."""
    rows = "".join(f"| {' | '.join(_cells(experiment, lines))} |\n" for experiment in CATALOGUE)
    return f"{HEAD}| --- | --- | --- | --- | --- | --- |\n{rows}"


def _cells(experiment: Experiment, lines: Sequence[Line]) -> tuple[str, ...]:
    title = f"{experiment.id} {experiment.what}"
    proven = proofs(lines, experiment.id)
    if not proven:
        return title, experiment.limit, "–", experiment.absent or NOT_YET, "–", "–"
    n = sum(line.get("n") or 0 for line in proven)
    broken = [line["test"] for line in proven if is_harmed(line)]
    results = [f"**broken: {', '.join(broken)}**"] if broken else []
    results += worst(proven)
    commits = ", ".join(sorted({line["commit"] for line in proven}))
    return title, experiment.limit, f"{n:,}", "; ".join(results), _ablated(experiment, lines), commits


def worst(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the sums of counters that must be 0, with the upper bound of a zero, and the greatest figures."""
    p99: dict[str, float] = {}
    for line in lines:
        for name, value in line.items():
            if isinstance(value, dict) and "p99" in value:
                p99[name] = max(p99.get(name, value["p99"]), value["p99"])
    yield from _zeros(lines)
    yield from (_figure(f"{_plain(subject)} p99", value, unit) for (subject, unit), value in _named(p99))
    most = {name: max(values) for name in GREATEST if (values := [*_numbers(name, lines)])}
    yield from (_figure(f"{_plain(subject)} at most", value, unit) for (subject, unit), value in _named(most))
    yield from _growth(lines)


def _zeros(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the counters that must be 0, those of the same number of chances together."""
    among: dict[int, list[str]] = {}
    for name in dict.fromkeys(name for line in lines for name in line.get("zeros", ())):
        ours = [line for line in lines if name in line.get("zeros", ())]
        count = sum(line[name] for line in ours)
        n = 0 if count else sum(map(_chances, ours))
        among.setdefault(n, []).append(f"{_plain(name)} {count}")
    for n, counts in among.items():
        yield ", ".join(counts) + (
            f" (3/n = {share(3 / n)} of {n:,})" if n > 3 else f" (n = {n})" if n else ""
        )


def _chances(line: Line) -> int:
    """Return how often *line* could have failed; 0 if it does not report that.

    The jobs of a load are no chances, because all of them share the fate of one event.
    """
    named = [name for name in CHANCES if line.get(name) and name not in line["zeros"]]
    if named == ["n"] and _is_of_a_load(line):
        return 0
    return chances(line, named) if named else 0


def _is_of_a_load(line: Line) -> bool:
    """Return whether its n are the jobs of a load (tests/faults/support/load.py)."""
    return "runs" in line and "told" in line


def _numbers(name: str, lines: Sequence[Line]) -> Iterator[float]:
    for line in lines:
        value = line.get(name)
        if isinstance(value, (int, float)):
            yield value
        elif isinstance(value, dict) and "p99" not in value:
            yield from value.values()


def _growth(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the growth per hour of figures that must stay constant."""
    for line in lines:
        for subject, growth in line.get("growth", {}).items():
            yield f"{_plain(subject).replace('mib', 'MiB')} {growth['an_hour']:+g} an hour"


def _named(figures: Mapping[str, float]) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield subject and unit of each figure, with its value."""
    for name, value in figures.items():
        subject, _, unit = name.rpartition("_")
        is_time = unit in UNITS and not subject.endswith("_per")
        yield ((subject, f" {UNITS[unit]}") if is_time else (name.replace("_per_s", "_a_second"), "")), value


def _figure(subject: str, value: float, unit: str) -> str:
    return f"{subject} {value:g}{unit}"


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _ablated(experiment: Experiment, lines: Sequence[Line]) -> str:
    """Return the verdicts on each safeguard that was removed."""
    ours = [
        line for line in lines if base(line["id"]) == experiment.id and line.get("size", "full") == "full"
    ]
    verdicts_of: dict[str, set[str]] = {}
    for line in ours:
        if "ablation" in line:
            verdicts_of.setdefault(_plain(line["ablation"]), set()).add(line["verdict"])
    return (
        "; ".join(
            f"{safeguard}: {', '.join(sorted(verdicts))}" for safeguard, verdicts in verdicts_of.items()
        )
        or "–"
    )
