"""``python -m bench NAME [--json] [--rounds N] [--quick]``; exit 1 if a goal is missed.

``python -m bench compare TREE NAME`` measures another work tree, or a revision, and this one in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys
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
    "compare": ("operands",),
    "sweep": (),
}
"""Each benchmark, and which of the further options it takes."""


def main() -> int:
    """Run one benchmark and print its rows."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("operands", nargs="*", metavar="TREE NAME", help="compare: with what, and of what")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved runs of each side (default 5)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument(
        "--no-peers", dest="peers", action="store_false", default=None, help="queue, bloat, gate, call"
    )
    parser.add_argument("--seconds", type=float, default=None, help="bloat: how long the load lasts")
    options = parser.parse_args()
    commit()  # rows name the one that was loaded, not the one that is there when they are told
    bench = importlib.import_module(f"bench.{options.name}")
    rows = asyncio.run(bench.run(rounds=options.rounds, quick=options.quick, **_further(parser, options)))
    print_rows(rows, as_json=options.json)
    return 0 if all(row.passed for row in rows) else 1


def _further(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Any]:
    """The options given beyond the common ones; an error for what this benchmark does not take."""
    every = {option for taken in NAMES.values() for option in taken}
    given = {name: getattr(options, name) for name in every if getattr(options, name) is not None}
    operands = given.pop("operands") or []
    if len(operands) != (2 if options.name == "compare" else 0):
        parser.error("compare takes TREE and NAME, and nothing else takes anything")
    if operands:
        return dict(zip(("tree", "name"), operands, strict=True))
    if not given.keys() <= set(NAMES[options.name]):
        parser.error(f"bench {options.name} takes no --{'no-' if 'peers' in given else ''}{min(given)}")
    return given


if __name__ == "__main__":
    sys.exit(main())
