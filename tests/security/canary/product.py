"""``python -m tests.security.canary.product [--bare] ARGUMENT...``: the command line of fairlead.

With ``--bare`` the filter that takes secrets out of text is off: the ablation.
"""

from __future__ import annotations

import sys


def without_filter() -> None:
    """From here on text passes as it is; nothing of fairlead may be imported before."""
    from fairlead.policy.text import redact

    redact.redact = lambda text, **options: text  # type: ignore[assignment]
    redact.redact_values = lambda value, depth=64: value


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["--bare"]:
        arguments.pop(0)
        without_filter()
    from fairlead.cli import main

    sys.exit(main(arguments))
