"""Seeds in fresh interpreters whose hashes of texts differ: each step, and all that is told, is the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import zip_longest

from tests.simulation.chance import Chance
from tests.simulation.swarm import FAULTS, Swarm

HASH_SEEDS = ("0", "1", "random")
CODE = """
from tests.simulation.report import headline
from tests.simulation.run import Options, run_seed
for seed in {seeds}:
    print(headline(run_seed(Options(seed))), flush=True)
"""


def covering(seeds: Sequence[int]) -> list[int]:
    """Few of *seeds* that between them have every fault on; ValueError where all of them have not.

    Next comes the one with most of the faults that are missing.
    """
    on = {seed: Swarm.of(Chance(seed).swarm).faults.keys() for seed in seeds}
    missing, counts = set(FAULTS), list[int]()
    while missing:
        seed = max(seeds, key=lambda seed: len(on[seed] & missing))
        if not on[seed] & missing:
            raise ValueError(f"no seed has {', '.join(sorted(missing))}")
        counts.append(seed)
        missing -= on[seed]
    return counts


def differing(seeds: Sequence[int]) -> int:
    """Run *seeds* in an interpreter for each of HASH_SEEDS, say what came, and how many were not the same."""
    children = [_begin(seeds, hash_seed) for hash_seed in HASH_SEEDS]
    outputs = [child.communicate()[0].splitlines() for child in children]
    failed = [f"PYTHONHASHSEED={of}: ended by {child.returncode}" for of, child in _failed(children)]
    count = 0
    for lines in zip_longest(*outputs, fillvalue="nothing"):
        if len(set(lines)) == 1:
            print(f"{lines[0]}, the same in {len(lines)} interpreters")
            continue
        count += 1
        print("\n".join(f"PYTHONHASHSEED={of}: {line}" for of, line in zip(HASH_SEEDS, lines, strict=True)))
    print("\n".join(failed), end="\n" if failed else "")
    return len(seeds) if failed else count


def _begin(seeds: Sequence[int], hash_seed: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", CODE.format(seeds=list(seeds))]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


def _failed(children: Sequence[subprocess.Popen[str]]) -> list[tuple[str, subprocess.Popen[str]]]:
    numbered = zip(HASH_SEEDS, children, strict=True)
    return [(hash_seed, child) for hash_seed, child in numbered if child.returncode]
