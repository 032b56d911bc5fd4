"""``fairlead doctor``: check everything that fairlead depends on, each problem with its hint."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.findings import show
from fairlead.cli.kit.invocation import Invocation, command, single
from fairlead.errors import InvalidConfigError

if TYPE_CHECKING:
    from fairlead.assembly.doctor.check import Check

app = single()


@command(app, "doctor")
def doctor(call: Invocation) -> Exit | None:
    """Check everything that fairlead depends on, and change nothing.

    Ends with 4 where something keeps fairlead from working; a warning alone does not.
    """
    return show(call, _all_checks(call))


def _all_checks(call: Invocation) -> Sequence[Check]:
    from fairlead.assembly.doctor.check import Check
    from fairlead.assembly.doctor.checkup import checkup

    try:
        settings = call.config().settings
    except InvalidConfigError as error:
        return [Check("settings", "fail", error.message, error.hint)]

    async def run_checks() -> list[Check]:
        return [check async for check in checkup(settings)]

    return [Check("settings", "ok", "every value is acceptable"), *asyncio.run(run_checks())]
