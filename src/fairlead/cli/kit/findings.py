"""The findings of a check-up as a table, each failure with its hint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation

if TYPE_CHECKING:
    from fairlead.assembly.doctor.check import Check


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
