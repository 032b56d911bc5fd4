"""``fairlead config``: settings and their origin, and how responses are classified. Spec: K1, C3."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.config.test_response import try_response
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, command, group

app = group("Settings, and how responses are classified.")
command(app, "test-response")(try_response)


@command(app, "show")
def show(
    call: Invocation,
    origin: Annotated[bool, typer.Option("--origin", help="Show where each value comes from.")] = False,
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
