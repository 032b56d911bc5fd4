"""What becomes of a refresh that was broken off, by its policy and by where it was."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.faults.support.child import Asked, Child, Gone
from tests.faults.support.report import Figures
from tests.faults.support.stage import FAMILY, Stage

STRICT = ("strict", FAMILY)
"""An answer that is lost under these cannot be had again."""


async def refresh_result(child: Child, connection: str, newer_than: int) -> dict[str, Any] | str:
    """The answer, or the name of the error."""
    try:
        return await child.ask("refresh", connection=connection, newer_than=newer_than)
    except Asked as refused:
        return refused.error


def expected(point: str, policy: str) -> tuple[str, int]:
    """Where it ends, and after how many posts."""
    if point in ("after_sent", "before_write"):  # marked and never left
        return ("needs_reauth", 0) if policy == FAMILY else ("active", 1)
    if point == "after_answer":  # the window
        return ("active", 2) if policy not in STRICT else ("needs_reauth", 2 if policy == "strict" else 1)
    return "active", 1


async def die_at(
    stage: Stage, point: str, policy: str, name: str, *, nth: int = 1, **order: Any
) -> tuple[str, float]:
    """Refresh and be killed on the way of the *nth*: the connection, and when the process was dead."""
    child = await stage.born(**order)  # at its birth it may settle what the dead before it left
    (connection,) = await stage.connect(child, policy, [name])
    await child.ask("arm", plan=f"token.{point}:{nth}:kill")
    for generation in range(1, nth):
        await child.ask("refresh", connection=connection, newer_than=generation)
    with pytest.raises(Gone):
        await child.ask("refresh", connection=connection, newer_than=nth)
    dead_s = time.monotonic()
    await child.died()
    return connection, dead_s


async def recover(
    stage: Stage, child: Child, connection: str, policy: str, figures: Figures, generation: int = 1
) -> None:
    """What the next process does with what was left, up to the end of the access token's life."""
    first = await refresh_result(child, connection, generation)
    if first == "OutcomeUnknownError":
        await stage.end_sends([connection])
        if policy in STRICT:
            await stage.expire([connection])
        first = await refresh_result(child, connection, generation)
    figures.holds(first == "ReauthRequiredError" or not isinstance(first, str), f"{policy}: {first}")


async def proven(
    stage: Stage, child: Child, connection: str, policy: str, name: str, generation: int, figures: Figures
) -> None:
    """What is stored is alive at the issuer: it can be refreshed once more."""
    fresh = await refresh_result(child, connection, generation)
    alive = not isinstance(fresh, str) and fresh["token"] == stage.live_token(policy, name)
    figures.holds(alive, f"{policy} {name}: generation {generation} is no good: {fresh}")
