"""``fairlead config``: settings and where they come from (K1), and how answers are judged by them (C3)."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.config.test_response import try_response
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, group

app = group("Settings, and how answers are judged by them.")
command(app, "test-response")(try_response)


@command(app, "show")
def show(
    call: Invocation,
    origin: Annotated[bool, typer.Option("--origin", help="Tell where each value came from.")] = False,
) -> Exit | None:
    """Show every setting. Secrets read ***."""
    rows = [
        {
            "setting": name,
            "value": None if value == "-" else value,
            **({"origin": came_from} if origin else {}),
        }
        for name, value, came_from in call.config().rows()
    ]
    call.out.rows(rows, ("setting", "value", *(("origin",) if origin else ())))
    return None
