"""``python -m bench NAME [--json] [--rounds N] [--quick]``; exit 1 if a goal is missed."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys

from bench.report import print_rows

NAMES = ("refresh",)


def main() -> int:
    """Run one benchmark and print its rows."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved runs of each side (default 5)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args()
    bench = importlib.import_module(f"bench.{options.name}")
    rows = asyncio.run(bench.run(rounds=options.rounds, quick=options.quick))
    print_rows(rows, as_json=options.json)
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
