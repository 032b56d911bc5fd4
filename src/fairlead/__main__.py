"""``python -m fairlead``: the command line."""

from __future__ import annotations

from fairlead.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
