"""A database that is not available says what to do about it, where that is known."""

from __future__ import annotations

import errno
import socket

import asyncpg
import pytest

from fairlead.adapters.postgres.postgres_errors import not_done
from fairlead.errors import DependencyUnavailableError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (asyncpg.TooManyConnectionsError("sorry, too many clients already"), "max_connections"),
        (socket.gaierror(-2, "Name or service not known"), "host name of DATABASE_URL"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (ConnectionRefusedError(111, "Connect call failed"), "`fairlead doctor`"),
    ],
)
def test_the_hint_fits_the_cause(error: Exception, words: str) -> None:
    translated = not_done(error)
    assert isinstance(translated, DependencyUnavailableError)
    assert words in translated.hint
    assert translated.reason == ("descriptors" if words == "ulimit -n" else None)
