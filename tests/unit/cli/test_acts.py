"""What a command does to several things, one after the other."""

from __future__ import annotations

import pytest

from fairlead.cli.kit.bulk_actions import on_each
from fairlead.cli.kit.exits import Exit
from fairlead.errors import (
    CredentialUnreadableError,
    DependencyUnavailableError,
    FairleadError,
    InvalidInputError,
)


async def act(error: FairleadError | None) -> str:
    if error is not None:
        raise error
    return "done"


async def test_failed_act_stops_no_other() -> None:
    tally = await on_each([None, InvalidInputError("no such thing"), None], lambda one: {"of": str(one)}, act)
    assert [row["result"] for row in tally.rows] == ["done", "failed", "done"]
    assert (tally.rows[1]["code"], tally.exit) == ("invalid_input", Exit.PARTIAL)


async def test_error_that_concerns_every_act_ends_the_command() -> None:
    """Where the database is away each of a million would wait for it."""
    of_one = CredentialUnreadableError("it does not open")
    tally = await on_each([of_one], lambda one: {}, act, but=(CredentialUnreadableError,))
    assert (tally.failed, tally.exit) == (1, Exit.FAILED)
    away = [of_one, DependencyUnavailableError("the database is away")]
    with pytest.raises(DependencyUnavailableError):
        await on_each(away, lambda one: {}, act, but=(CredentialUnreadableError,))
