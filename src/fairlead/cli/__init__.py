"""The command line: a person's way to do what the doors offer to programs.

``main`` is the entry point. ``fairlead --version`` stands in scripts and health checks, so it loads nothing;
every other command loads what it needs when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fairlead._version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's); the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"fairlead {__version__}")
        return 0
    from fairlead.cli.entry import run

    return run(given)
