"""``python -m tests.simulation --seeds 200``: runs seeds and says which of them broke something.

--seeds N [--from K]   N seeds, from K (default 0), over the cores of this machine
--seed N [--trace]     one seed; with its last steps
--without A,B          leave out faults; --fifo A-B: steps without chance (both for shrinking)
--same                 one seed in three fresh interpreters with different hash seeds: the same trace
--shrink               with --seed: cut what broke down to the faults and the chance that it takes
--ablations            take out each safeguard in turn: within --seeds seeds it must be found
--json                 one line of JSON for each seed, and a last one for all
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from tests.simulation import ablations
from tests.simulation.fleet import cores, run_many
from tests.simulation.report import as_json, told
from tests.simulation.run import Options, Outcome, run_seed
from tests.simulation.shrink import shrink

HASH_SEEDS = ("0", "1", "random")


def main(given: Sequence[str] | None = None) -> int:
    """0: all held; 1: something broke, or was not the same."""
    asked = _parser().parse_args(given)
    if asked.same:
        return _same(asked.seed or asked.first)
    if asked.ablations:
        return ablations.main(range(asked.first, asked.first + asked.seeds), asked.processes or cores())
    if asked.seed is not None:
        options = _options(asked, asked.seed)
        run = partial(shrink, run_seed) if asked.shrink else run_seed
        return _one(run(options), trace=asked.trace, as_lines=asked.json)
    seeds = range(asked.first, asked.first + asked.seeds)
    return _many((_options(asked, seed) for seed in seeds), asked.processes, as_lines=asked.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=__doc__,
    )
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--without", default="")
    parser.add_argument("--fifo", default="")
    for flag in ("--trace", "--same", "--shrink", "--ablations", "--json"):
        parser.add_argument(flag, action="store_true")
    return parser


def _options(asked: argparse.Namespace, seed: int) -> Options:
    return Options(seed, frozenset(filter(None, asked.without.split(","))), tuple(_ranges(asked.fifo)))


def _ranges(text: str) -> Iterator[tuple[int, int]]:
    for part in filter(None, text.split(",")):
        begin, end = part.split("-")
        yield int(begin), int(end)


def _one(outcome: Outcome, *, trace: bool, as_lines: bool) -> int:
    print(json.dumps(as_json(outcome)) if as_lines else told(outcome, trace=trace))
    return 1 if outcome.broken else 0


def _many(options: Iterable[Options], processes: int | None, *, as_lines: bool) -> int:
    began, broken, count, steps = time.monotonic(), 0, 0, 0
    for outcome in run_many(options, processes):
        count, steps = count + 1, steps + outcome.steps
        broken += outcome.broken is not None
        _tell(outcome, as_lines=as_lines)
    took_s = time.monotonic() - began
    if as_lines:
        print(json.dumps({"seeds": count, "broken": broken, "steps": steps, "took_s": round(took_s, 1)}))
    else:
        print(f"{count} seeds in {took_s:.1f} s, {steps} steps: {broken} broken")
    return 1 if broken else 0


def _tell(outcome: Outcome, *, as_lines: bool) -> None:
    if as_lines:
        print(json.dumps(as_json(outcome)), flush=True)
    elif outcome.broken:
        print(told(outcome), flush=True)


def _same(seed: int) -> int:
    begun = [_begin_fresh(seed, hash_seed) for hash_seed in HASH_SEEDS]
    lines = [child.communicate()[0].strip() or f"ended by {child.returncode}" for child in begun]
    for hash_seed, line in zip(HASH_SEEDS, lines, strict=True):
        print(f"PYTHONHASHSEED={hash_seed}: {line}")
    return 0 if len(set(lines)) == 1 and not any(child.returncode for child in begun) else 1


def _begin_fresh(seed: int, hash_seed: str) -> subprocess.Popen[str]:
    """A new interpreter that says the headline of *seed*."""
    code = (
        "from tests.simulation.run import Options, run_seed\n"
        "from tests.simulation.report import headline\n"
        f"print(headline(run_seed(Options({seed}))))"
    )
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    sys.exit(main())
