"""The table of experiments in docs/figures.md, made from what they found (results/); see `tools.promises`."""

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
"""Figures that are judged, where the greatest is the worst; some are one number, some one for each case."""
HEAD = "| experiment | what must hold | n | found | without its safeguard | commit |\n"


def written(page: str, lines: Sequence[Line]) -> str:
    """*page* with the table, and the rows of the simulation, as *lines* have them."""
    return simulated.written(between(page, BEGIN, END, table(lines)), lines)


def between(text: str, begin: str, end: str, inside: str) -> str:
    """*text* with *inside* between the marks *begin* and *end*; ValueError where they are not there."""
    before, begun, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not (begun and found):
        raise ValueError(f"there is no {begin} ... {end}")
    return f"{before}{begin}\n{inside}{end}{after}"


def table(lines: Sequence[Line]) -> str:
    """One row an experiment."""
    rows = "".join(f"| {' | '.join(_cells(each, lines))} |\n" for each in CATALOGUE)
    return f"{HEAD}| --- | --- | --- | --- | --- | --- |\n{rows}"


def _cells(each: Experiment, lines: Sequence[Line]) -> tuple[str, ...]:
    named = f"{each.id} {each.what}"
    found = proofs(lines, each.id)
    if not found:
        return named, each.limit, "–", each.absent or NOT_YET, "–", "–"
    n = sum(line.get("n") or 0 for line in found)
    broken = [line["test"] for line in found if is_harmed(line)]
    told = [f"**broken: {', '.join(broken)}**"] if broken else []
    told += worst(found)
    commits = ", ".join(sorted({line["commit"] for line in found}))
    return named, each.limit, f"{n:,}", "; ".join(told), _ablated(each, lines), commits


def worst(lines: Sequence[Line]) -> Iterator[str]:
    """What must be 0, added up over all tests, a zero with the most it may be; the greatest of each p99."""
    p99: dict[str, float] = {}
    for line in lines:
        for name, value in line.items():
            if isinstance(value, dict) and "p99" in value:
                p99[name] = max(p99.get(name, value["p99"]), value["p99"])
    yield from _zeros(lines)
    yield from (_figure(f"{_plain(what)} p99", value, unit) for (what, unit), value in _named(p99))
    most = {name: max(found) for name in GREATEST if (found := [*_numbers(name, lines)])}
    yield from (_figure(f"{_plain(what)} at most", value, unit) for (what, unit), value in _named(most))
    yield from _growth(lines)


def _zeros(lines: Sequence[Line]) -> Iterator[str]:
    """Those of the same chances in one."""
    among: dict[int, list[str]] = {}
    for name in dict.fromkeys(name for line in lines for name in line.get("zeros", ())):
        ours = [line for line in lines if name in line.get("zeros", ())]
        count = sum(line[name] for line in ours)
        n = 0 if count else sum(map(_chances, ours))
        among.setdefault(n, []).append(f"{_plain(name)} {count}")
    for n, told in among.items():
        yield ", ".join(told) + (f" (3/n = {share(3 / n)} of {n:,})" if n > 3 else f" (n = {n})" if n else "")


def _chances(line: Line) -> int:
    """How often *line* had the chance to be wrong; 0 where it does not tell.

    What a load has stored are no chances: all of it shares the fate of what was done to it, and where no line
    tells how often that was it may have been once.
    """
    named = [name for name in CHANCES if line.get(name) and name not in line["zeros"]]
    if named == ["n"] and _is_of_a_load(line):
        return 0
    return chances(line, named) if named else 0


def _is_of_a_load(line: Line) -> bool:
    """Whether its n are the jobs of one (tests/faults/support/load.py)."""
    return "runs" in line and "told" in line


def _numbers(name: str, lines: Sequence[Line]) -> Iterator[float]:
    for line in lines:
        value = line.get(name)
        if isinstance(value, (int, float)):
            yield value
        elif isinstance(value, dict) and "p99" not in value:
            yield from value.values()


def _growth(lines: Sequence[Line]) -> Iterator[str]:
    """How fast what must stay as it is grew."""
    for line in lines:
        for what, told in line.get("growth", {}).items():
            yield f"{_plain(what).replace('mib', 'MiB')} {told['an_hour']:+g} an hour"


def _named(figures: Mapping[str, float]) -> Iterator[tuple[tuple[str, str], float]]:
    """What each figure is of, and in which unit."""
    for name, value in figures.items():
        what, _, unit = name.rpartition("_")
        is_time = unit in UNITS and not what.endswith("_per")
        yield ((what, f" {UNITS[unit]}") if is_time else (name.replace("_per_s", "_a_second"), "")), value


def _figure(what: str, value: float, unit: str) -> str:
    return f"{what} {value:g}{unit}"


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _ablated(each: Experiment, lines: Sequence[Line]) -> str:
    """Of each safeguard that was taken out whether that was seen, by each of the tests."""
    ours = [line for line in lines if base(line["id"]) == each.id and line.get("size", "full") == "full"]
    told: dict[str, set[str]] = {}
    for line in ours:
        if "ablation" in line:
            told.setdefault(_plain(line["ablation"]), set()).add(line["verdict"])
    return "; ".join(f"{what}: {', '.join(sorted(verdicts))}" for what, verdicts in told.items()) or "–"
