"""``fairlead doctor``: everything fairlead stands on, checked, each finding with the way out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairlead.cli.exits import Exit
from fairlead.cli.invocation import Invocation, command, single
from fairlead.errors import ConfigInvalid

if TYPE_CHECKING:
    from fairlead.checkup import Check

app = single()


@command(app, "doctor")
def doctor(call: Invocation) -> Exit | None:
    """Check everything that fairlead stands on, and change nothing.

    Ends with 4 where something keeps fairlead from working; a warning alone does not.
    """
    return show(call, _all_checks(call))


def show(call: Invocation, checks: Sequence[Check]) -> Exit:
    """Findings with the way out of each; 4 where one is a failure."""
    call.out.rows(
        [
            {"check": check.name, "status": check.status, "detail": check.detail, "hint": check.hint}
            for check in checks
        ],
        ("check", "status", "detail"),
    )
    if not call.out.as_json:
        for check in checks:
            if check.hint is not None and check.status != "ok":
                call.out.say(f"{check.name}: {check.hint}")
    return Exit.UNHEALTHY if any(check.status == "fail" for check in checks) else Exit.OK


def _all_checks(call: Invocation) -> Sequence[Check]:
    from fairlead.checkup import Check, checkup

    try:
        settings = call.config().settings
    except ConfigInvalid as error:
        return [Check("settings", "fail", error.what, error.way_out)]

    async def look() -> list[Check]:
        return [check async for check in checkup(settings)]

    return [Check("settings", "ok", "every value is acceptable"), *asyncio.run(look())]
