"""The results of checks as a table, each failure with its hint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.output import fields_of

if TYPE_CHECKING:
    from fairlead.assembly.doctor.check import Check


def show(call: Invocation, checks: Sequence[Check]) -> Exit:
    """Print the results, each problem with its hint. Return 4 if one failed."""
    rows = [fields_of(check, "check=name status detail hint") for check in checks]
    call.out.rows(rows, ("check", "status", "detail"))
    if not call.out.as_json:
        for check in checks:
            if check.hint is not None and check.status != "ok":
                call.out.say(f"{check.name}: {check.hint}")
    return Exit.UNHEALTHY if any(check.status == "fail" for check in checks) else Exit.OK
