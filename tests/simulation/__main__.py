"""``python -m tests.simulation --seeds 200``: runs seeds and says which of them broke something.

--seeds N [--from K]   N seeds, from K (default 0), over the cores of this machine
--seed N [--trace]     one seed; with its last steps
  --ablation NAME      without that safeguard
  --without A,B        leave out faults; --fifo A-B: steps without chance (both for shrinking)
  --shrink             cut what broke down to the faults and the chance that it takes
--same                 seeds with every fault between them, or --seed, alike in three fresh interpreters
--ablations            take out each safeguard in turn: within --seeds seeds it must be found
--json                 one line of JSON for each seed, and a last one for all
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from tests.simulation import ablations, kept, same, strikes
from tests.simulation.ablations import AblationFinding
from tests.simulation.fleet import cores, run_many
from tests.simulation.report import as_json, describe
from tests.simulation.run import Options, Outcome, run_seed
from tests.simulation.shrink import shrink
from tests.simulation.stores import Parts
from tests.simulation.swarm import FAULTS
from tools.promise import share

SEEDS = kept.COMPLETE_RUN
"""Unless another number is asked for."""
RANGE = frozenset({"seeds", "first", "processes"})
MODES = {
    "ablations": RANGE,
    "same": frozenset({"seed"}),
    "seed": frozenset({"trace", "ablation", "without", "fifo", "shrink", "json"}),
    "": RANGE | {"without", "json"},
}
"""What goes with each thing that can be asked for; \"\": many seeds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0: all held; 1: something broke, or was not the same."""
    run_options = _parse(arguments)
    first = run_options.first or 0
    seeds = range(first, first + (SEEDS if run_options.seeds is None else run_options.seeds))
    if run_options.same:
        return _same(run_options.seed)
    if run_options.ablations:
        return _ablations(seeds, run_options.processes or cores())
    if run_options.seed is not None:
        options = _options(run_options, run_options.seed)
        run = partial(shrink, run_seed) if run_options.shrink else run_seed
        return _report_one(run(options), trace=run_options.trace, as_lines=run_options.json)
    return _many(
        [_options(run_options, seed) for seed in seeds], run_options.processes, as_lines=run_options.json
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=__doc__,
    )
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--from", type=int, dest="first")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--without", type=_faults)
    parser.add_argument("--fifo", type=lambda text: tuple(_ranges(text)))
    parser.add_argument("--ablation", choices=[ablation.name for ablation in ablations.ABLATIONS])
    for flag in ("--trace", "--same", "--shrink", "--ablations", "--json"):
        parser.add_argument(flag, action="store_true", default=None)
    return parser


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """*given*, or an end with 2: what would be left unheard is no run that was asked for."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    given_names = {name for name, value in vars(parsed).items() if value is not None}
    mode = next(mode for mode in MODES if not mode or mode in given_names)
    for name in sorted(given_names - MODES[mode] - {mode}):
        flag = "from" if name == "first" else name
        parser.error(f"--{flag} does not go with {f'--{mode}' if mode else 'many seeds'}")
    return parsed


def _options(parsed: argparse.Namespace, seed: int) -> Options:
    parts = ablations.named(parsed.ablation).parts() if parsed.ablation else Parts()
    return Options(seed, parsed.without or frozenset(), parsed.fifo or (), parts)


def _faults(text: str) -> frozenset[str]:
    names = frozenset(filter(None, text.split(",")))
    if unknown := sorted(names - set(FAULTS)):
        raise argparse.ArgumentTypeError(f"no fault is called {unknown[0]!r}; one of {', '.join(FAULTS)}")
    return names


def _ranges(text: str) -> Iterator[tuple[int, int]]:
    for part in filter(None, text.split(",")):
        begin, end = part.split("-")
        yield int(begin), int(end)


def _report_one(outcome: Outcome, *, trace: bool, as_lines: bool) -> int:
    print(json.dumps(as_json(outcome)) if as_lines else describe(outcome, trace=trace))
    return 1 if outcome.broken else 0


def _many(options: Sequence[Options], processes: int | None, *, as_lines: bool) -> int:
    start_mono, broken, steps = time.monotonic(), 0, 0
    struck: Counter[str] = Counter()
    for outcome in run_many(options, processes):
        steps += outcome.steps
        broken += outcome.broken is not None
        struck.update(outcome.struck)
        _tell(outcome, as_lines=as_lines)
    took_s = time.monotonic() - start_mono
    if not any(option.without for option in options):
        kept.seeds([option.seed for option in options], broken=broken, steps=steps, seconds=took_s)
    missed = strikes.never(struck) if _are_enough(options) else []
    if as_lines:
        totals = {"seeds": len(options), "broken": broken, "steps": steps, "took_s": round(took_s, 1)}
        print(json.dumps({**totals, "struck": struck, "never": missed}))
    else:
        print("\n".join(strikes.table(struck)))
        print(f"{len(options)} seeds in {took_s:.1f} s, {steps:,} steps: {_harm(broken, len(options))}")
        print("\n".join(f"never happened: {name}" for name in missed), end="\n" if missed else "")
    return 1 if broken or missed else 0


def _harm(broken: int, seeds: int) -> str:
    """How many broke; beside a zero how many may at most, at 95 %, of which a few seeds say nothing."""
    return f"{broken} broken" + (f" (3/n = {share(3 / seeds)})" if not broken and seeds > 3 else "")


def _are_enough(options: Sequence[Options]) -> bool:
    """Whether every fault, and every fault point, should have come up in so many."""
    return len(options) >= strikes.ENOUGH and not any(option.without for option in options)


def _tell(outcome: Outcome, *, as_lines: bool) -> None:
    if as_lines:
        print(json.dumps(as_json(outcome)), flush=True)
    elif outcome.broken:
        print(describe(outcome), flush=True)


def _same(seed: int | None) -> int:
    seeds = same.covering(range(SEEDS)) if seed is None else [seed]
    start_mono = time.monotonic()
    differ = same.differing(seeds)
    took_s = time.monotonic() - start_mono
    if seed is None:
        kept.same(seeds, interpreters=len(same.HASH_SEEDS), differ=differ, seconds=took_s)
    which = f"{len(seeds)} seeds, every fault among them," if seed is None else "1 seed"
    print(f"{which} in {len(same.HASH_SEEDS)} fresh interpreters: {differ} differ ({took_s:.1f} s)")
    return 1 if differ else 0


def _ablations(seeds: Sequence[int], processes: int) -> int:
    """Print what found each of them, and where; 1 if one was not found."""
    start_mono, findings = time.monotonic(), dict[str, AblationFinding | None]()
    for name, finding in ablations.search_all(seeds, processes):
        findings[name] = finding
        result = (
            f"not found in {len(seeds)} seeds"
            if finding is None
            else f"{finding.broken} (seed {finding.seed})"
        )
        print(f"{name:32} {result}", flush=True)
    took_s = time.monotonic() - start_mono
    kept.ablations(findings, len(seeds), seconds=took_s)
    caught = sum(finding is not None for finding in findings.values())
    print("again: python -m tests.simulation --ablation NAME --seed N --trace (--shrink cuts it down)")
    print(f"{caught} of {len(findings)} found in {took_s:.1f} s")
    return 1 if caught < len(findings) else 0


if __name__ == "__main__":
    sys.exit(main())
