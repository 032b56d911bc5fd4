"""The command line.

``main`` is the entry point. Scripts and health checks call ``fairlead --version``, so it loads nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fairlead._version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's), and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        print(f"fairlead {__version__}")
        return 0
    from fairlead.cli.entry import run

    return run(words)
