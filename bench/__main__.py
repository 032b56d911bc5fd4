"""``python -m bench NAME [NAME ...] [--json] [--rounds N] [--quick]``; exit 1 if a goal is missed.

``python -m bench compare TREE NAME [NAME ...]`` measures another work tree, or a revision, and this one in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from bench.report import commit, print_rows

NAMES = {
    "refresh": (),
    "fairness": (),
    "queue": ("peers",),
    "bloat": ("peers", "seconds"),
    "gate": ("peers",),
    "call": ("peers",),
    "handover": (),
    "utilisation": (),
    "storm": (),
    "sweep": (),
}
"""Each benchmark, and which of the further options it takes."""
COMPARED = ("refresh", "refresh.kept", "call", "queue", "gate")
"""What `bench.slices` measures. Not imported from there: rows name the commit before anything is loaded."""


def main() -> int:
    """Run the benchmarks one after the other and print the rows of each when it ends."""
    parser = _parser()
    options = parser.parse_args()
    runs = list(_runs(parser, options))
    commit()  # rows name the commit that was loaded, even if the tree changes meanwhile
    passed = True
    for name, further in runs:
        bench = importlib.import_module(f"bench.{name}")
        rows = asyncio.run(bench.run(rounds=options.rounds, quick=options.quick, **further))
        print_rows(rows, as_json=options.json)
        passed = passed and all(row.passed for row in rows)
    return 0 if passed else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help=f"{', '.join(NAMES)}; or: compare TREE NAME [NAME ...], with the names {', '.join(COMPARED)}",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved runs of each side (default 5)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument(
        "--no-peers", dest="peers", action="store_false", default=None, help="queue, bloat, gate, call"
    )
    parser.add_argument("--seconds", type=float, default=None, help="bloat: how long the load lasts")
    return parser


def _runs(
    parser: argparse.ArgumentParser, options: argparse.Namespace
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each benchmark with its further options. Exit with a usage error before anything runs."""
    values = {"peers": options.peers, "seconds": options.seconds}
    further = {name: value for name, value in values.items() if value is not None}
    takes: Mapping[str, tuple[str, ...]] = NAMES
    first, *names = options.names
    if first == "compare":
        if len(names) < 2:
            parser.error("compare takes TREE and at least one NAME")
        tree, *names = names
        takes = dict.fromkeys(COMPARED, ())
    else:
        names = options.names
    for name in names:
        if name not in takes:
            parser.error(f"no benchmark {name!r}; there are: {', '.join(takes)}")
        if not further.keys() <= set(takes[name]):
            parser.error(f"bench {name} takes no --{'no-' if 'peers' in further else ''}{min(further)}")
        yield ("compare", {"tree": tree, "name": name}) if first == "compare" else (name, further)


if __name__ == "__main__":
    sys.exit(main())
