"""``python -m tools.promises``: README's table of promises, made from what experiments found (results/).

A figure that no experiment gave in full size at any commit is "not run yet at this commit". What README told
before results were kept stands in results/README.json, until the experiments have been run again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.results import ROOT, Line, proofs, read

README = ROOT / "README.md"
BEGIN, END = "<!-- promises -->", "<!-- /promises -->"
NOT_YET = "not run yet at this commit"


@dataclass(frozen=True, slots=True)
class Zero:
    """Counters that must be 0, added up over the tests of experiments; each of which has *of* chances."""

    words: str
    experiments: Sequence[str]
    counters: Sequence[str]
    of: str = "n"

    def told(self, lines: Sequence[Line]) -> tuple[str, str, str]:
        """The figure, n, and the most it may be at 95 %."""
        found = [line for line in lines if any(name in line for name in self.counters)]
        count = sum(line.get(name, 0) for line in found for name in self.counters)
        n = sum(line.get(self.of) or 0 for line in found)
        return f"{self.words} {count}", f"{n:,}", share(3 / n) if n and not count else "–"


@dataclass(frozen=True, slots=True)
class Most:
    """The worst value of a counter; of quantiles that which *at* names."""

    words: str
    experiments: Sequence[str]
    counter: str
    unit: str = ""
    at: str = "max"
    of: str = "n"

    def told(self, lines: Sequence[Line]) -> tuple[str, str, str]:
        """As of Zero; there is nothing that may be more."""
        found = [line for line in lines if line.get(self.counter) not in (None, {})]
        values = [_value(line[self.counter], self.at) for line in found]
        n = sum(line.get(self.of) or 0 for line in found)
        return f"{self.words} {max(values):,g}{self.unit}" if values else "", f"{n:,}", "–"


@dataclass(frozen=True, slots=True)
class Promise:
    """One row. *command* runs what shows it."""

    id: str
    says: str
    parts: Sequence[Zero | Most]
    limit: str
    command: str = field(default="")


def _value(told: Any, at: str) -> float:
    if not isinstance(told, Mapping):
        return float(told)
    return float(told[at]) if at in told else max(map(float, told.values()))


def share(value: float) -> str:
    """In per cent, with the two digits that count."""
    percent = value * 100
    digits = max(0, 1 - math.floor(math.log10(percent)))
    text = f"{percent:.{digits}f}"
    return (text.rstrip("0").rstrip(".") if digits else text) + " %"


REDIS = ("E20", "E21", "E22", "E23")

PROMISES = (
    Promise(
        "P1",
        "A job whose enqueue returned is not lost.",
        (
            Zero("accepted jobs lost", ("E01", "E11", "E13"), ("lost",)),
            Zero("commits in doubt that were told wrongly", ("E12",), ("false_success",)),
            Zero("illegal states after a death at a named point", ("E02",), ("illegal_states",)),
        ),
        "PostgreSQL with synchronous_commit on, and its disk survives.",
    ),
    Promise(
        "P2",
        "A result, retry or dead letter of a superseded lease is not accepted.",
        (Zero("late writes accepted", ("E01", "E03", "E11", "E13"), ("stale_accepted",)),),
        "The handler's own effects elsewhere are not undone.",
    ),
    Promise(
        "P3",
        "A job may run more than once; extra runs are no more than the jobs in flight at kills.",
        (
            Most("extra runs", ("E01",), "extra_runs", of="in_flight_at_kills"),
            Zero("duplicates after commits in doubt", ("E12",), ("duplicates",)),
        ),
        "At least once: handlers have to be idempotent.",
    ),
    Promise(
        "P4",
        "After SIGKILL work goes on within lease + sweep + 1 s.",
        (
            Most(
                "jobs of the killed run again, p99", ("E01",), "recovery_s", " s", "p99", "in_flight_at_kills"
            ),
            Most("at a bound of", ("E01",), "recovery_bound_s", " s", of="kills"),
        ),
        "At once where death is proven (same host); else after the lease, by default 30 s.",
    ),
    Promise(
        "P5",
        "A job that kills its worker does so three times at most; its neighbours lose nothing.",
        (
            Most("processes killed by one job", ("E07",), "crashes_of_a_bomb"),
            Zero(
                "neighbours or their attempts lost",
                ("E07",),
                ("neighbours_lost", "attempts_lost"),
                "neighbours",
            ),
        ),
        "Neighbours run again, each alone, so they wait.",
    ),
    Promise(
        "P6",
        "No refresh token is burnt, but in one window that is measured.",
        (
            Zero(
                "burnt outside the window",
                ("E42", "E43", "E44", "E45"),
                ("burnt", "burnt_outside_window", "burnt_where_it_can_be_had_again"),
            ),
            Most("window p50", ("E43",), "window_ms", " ms", "p50", "window_n"),
            Most("p99", ("E43",), "window_ms", " ms", "p99", "window_n"),
        ),
        "The process dies between the provider's commit and ours, and the provider gives no grace.",
    ),
    Promise(
        "P7",
        "Requests in any window T are no more than burst + rate × T, as the upstream counts them.",
        (Most("requests over that", REDIS, "rate_over"),),
        "Seen at the upstream, so with the lag of the wire; shares come on top while processes with and"
        " without Redis overlap, 0.5 s a change.",
    ),
    Promise(
        "P8",
        "Calls in flight are no more than the slots, as the upstream counts them.",
        (
            Zero("over the limit", (*REDIS, "E27"), ("over_limit_at_upstream",), "calls"),
            Zero("slots given twice or leaked", ("E27",), ("over_admissions", "leaked")),
        ),
        "A holder that is frozen beyond its lease may still be served; a failover that loses the last grants"
        " overlaps for a lease.",
    ),
    Promise(
        "P9",
        "Beside a tenant with 100 times the load others wait twice their p99 alone + one job at most.",
        (
            Most("p99 alone", ("E46",), "alone_ms", " ms", "p99"),
            Most("beside it", ("E46",), "loud_ms", " ms", "p99"),
        ),
        "By jobs that are begun, not by their length: slow jobs need a cap of their tenant.",
    ),
    Promise(
        "P10",
        "Retries add 20 % at most; when the trigger ends, 95 % of the calls do well again within 60 s.",
        (
            Most("requests a call", ("E38",), "amplification"),
            Most("good again after", ("E38",), "recovery_s", " s"),
        ),
        "An open loop at 80 % of what the API can do.",
    ),
    Promise(
        "P11",
        "One answer costs 32 MiB, the deadline and 50 ms of the loop at most.",
        (
            Zero("processes killed by an answer", ("E33",), ("killed",)),
            Most("memory", ("E33",), "peak_mib", " MiB"),
            Most("loop still for", ("E33",), "stall_ms", " ms"),
            Most("longest call of 10 s", ("E31",), "took_s", " s"),
        ),
        "A body of 16 MiB at most, as set by default.",
    ),
    Promise(
        "P12",
        "No secret is found outside the vault.",
        (Zero("canaries found", ("S13",), ("canary_found",)),),
        "Logs, events, errors, dead letters, database, command lines; dashboard and mail do not exist yet.",
        "`make security`",
    ),
    Promise(
        "P13",
        "No tenant reads or writes what is another's.",
        (Zero("cross-tenant reads and writes", ("S27",), ("cross_tenant",)),),
        "By the matrix of the store's statements and the library's calls.",
        "`make security`",
    ),
    Promise(
        "P14",
        "PostgreSQL gone: workers stay up, keep what was finished for 60 s, and go on within 5 s.",
        (
            Zero("finished results lost", ("E14",), ("finished_results_lost",), "finished_meanwhile"),
            Most("works again after", ("E13", "E14"), "resume_s", " s"),
        ),
        "A bounded buffer; after 60 s no new work is begun.",
    ),
    Promise(
        "P15",
        "Redis gone: calls go on by their share, or not at all where so set; full limits again in 5 s.",
        (
            Zero("calls failed for it", ("E21", "E22", "E23", "E24"), ("failed",), "calls"),
            Most("fleet's limits again after", ("E21", "E22", "E23", "E24"), "resume_s", " s"),
        ),
        "Slots are full again one lease after a loss of data.",
    ),
)


def table(lines: Sequence[Line]) -> str:
    """The rows of README."""
    head = "| promise | figure | n | 3/n | command | limit |\n| --- | --- | --- | --- | --- | --- |\n"
    return head + "".join(f"| {' | '.join(_cells(promise, lines))} |\n" for promise in PROMISES)


def _cells(promise: Promise, lines: Sequence[Line]) -> list[str]:
    used = {name: proofs(lines, name) for part in promise.parts for name in part.experiments}
    ours = [line for found in used.values() for line in found]
    seed = next((line for line in lines if line.get("promise") == promise.id), None)
    command = promise.command or f"`make faults ARGS=\"-k '{' or '.join(used)}'\"`"
    says = f"{promise.id} {promise.says}"
    if not ours and seed is not None:
        figure = f"{seed['figure']} (commit {seed['commit']})"
        return [says, figure, f"{seed['n']:,}", seed.get("most", "–"), command, promise.limit]
    told = [part.told([line for name in part.experiments for line in used[name]]) for part in promise.parts]
    told = [each for each in told if each[0] and each[1] != "0"]
    if not told:
        return [says, NOT_YET, "–", "–", command, promise.limit]
    figures, ns, mosts = zip(*told, strict=True)
    return [
        says,
        "; ".join(figures) + _where(used, ours),
        "; ".join(ns),
        "; ".join(mosts),
        command,
        promise.limit,
    ]


def _where(used: Mapping[str, Sequence[Line]], ours: Sequence[Line]) -> str:
    """At which commits, which experiments are missing, and what does not hold."""
    told = "commit " + ", ".join(sorted({line.get("commit", "unknown") for line in ours}))
    missing = [name for name, found in used.items() if not found]
    told += f"; {', '.join(missing)} {NOT_YET}" if missing else ""
    broken = sorted({line["id"] for line in ours if line.get("verdict", "holds") != "holds"})
    return f" ({told})" + (f" **broken: {', '.join(broken)}**" if broken else "")


def written(readme: str, lines: Sequence[Line]) -> str:
    """*readme* with the table as *lines* have it."""
    before, _, rest = readme.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"README has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n{table(lines)}{END}{after}"


def main(readme: Path = README) -> None:
    """Write README."""
    readme.write_text(written(readme.read_text("utf-8"), read()), "utf-8")


if __name__ == "__main__":
    main()
