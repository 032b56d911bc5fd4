"""Exit codes, and which error leads to which (docs/reference/exit-codes.md).

They follow sysexits(3) where it has a number, so that supervisors and scripts can act on them.
"""

from __future__ import annotations

from enum import IntEnum

from fairlead.errors import (
    DependencyUnavailableError,
    EndpointPausedError,
    FairleadError,
    InvalidInputError,
    SetupError,
)
from fairlead.policy.failures.category import Category


class Exit(IntEnum):
    """The exit code of a command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    PARTIAL = 3
    UNHEALTHY = 4
    UNAVAILABLE = 69
    LATER = 75
    FORBIDDEN = 77
    CONFIG = 78
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: dict[Exit, str] = {
    Exit.OK: "done; for `run`: drained and stopped as asked, by whichever signal",
    Exit.FAILED: "it failed, and the same command will fail again; or you answered no",
    Exit.USAGE: "the command line or a value given with it cannot be used; nothing was changed",
    Exit.PARTIAL: "some of several were done, others not; the output shows the result of each",
    Exit.UNHEALTHY: "`status`, `doctor` or `vault verify` found something unhealthy",
    Exit.UNAVAILABLE: "the database, Redis or an optional package is unavailable",
    Exit.LATER: "refused or failed for now; the same command may work later (`retry_after_s`)",
    Exit.FORBIDDEN: "a right is missing: of this user to a file, or of the connection at the provider",
    Exit.CONFIG: "settings, master key, migrations or provider profiles are wrong",
    Exit.INTERRUPTED: "ended by SIGINT (for `run`: by a second signal, before the drain was over)",
    Exit.TERMINATED: "ended by SIGTERM (for `run`: by a second signal, before the drain was over)",
}
"""The meaning of each, for docs/reference/exit-codes.md."""


def exit_code(error: FairleadError) -> Exit:
    """Return the exit code of *error*, by the first rule that matches."""
    if isinstance(error, DependencyUnavailableError):
        return Exit.UNAVAILABLE
    if isinstance(error, SetupError | EndpointPausedError):
        return Exit.CONFIG
    if isinstance(error, InvalidInputError):
        return Exit.USAGE
    if error.category == Category.PERMANENT_PERMISSION:
        return Exit.FORBIDDEN
    return Exit.LATER if error.retryable else Exit.FAILED
