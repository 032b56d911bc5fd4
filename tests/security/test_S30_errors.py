"""S30: what goes wrong inside is told by code and way out: no SQL, no path of a program, no secret."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fairlead.cli import entry
from fairlead.cli.kit.invocation import GlobalOptions
from fairlead.errors import FairleadError, all_errors
from fairlead.policy.text.safe import safe_text
from tests.support.cli import Shell
from tests.support.rows import run

INNER = re.compile(
    r"Traceback|File \"|\.py\b|site-packages|SELECT |INSERT |UPDATE |DELETE |FROM \w+ WHERE|\$1|asyncpg"
    r"|0x[0-9a-f]{6,}|postgresql://|redis://|\bline \d+",
)
COMMANDS = (("jobs", "list"), ("dlq", "list"), ("connections", "list"), ("vault", "verify"), ("status",))
EXPECTED_CALLS = (3, 4)
"""Ends of a command that did its work and found something."""


@pytest.mark.slow
@pytest.mark.parametrize("table", ["job", "credential", "worker_session"])
async def test_S30_a_broken_database_is_told_without_its_insides(
    shell: Shell, database: Any, table: str
) -> None:
    """A table that is gone is a failure that no command expects."""
    await run(database, f"ALTER TABLE {table} RENAME TO gone_{table}")
    failed = 0
    for command in COMMANDS:
        done = await shell(*command, "--json")
        assert not INNER.search(done.err), done.err
        if done.code and done.code not in EXPECTED_CALLS:
            failed += 1
            assert done.error["code"]
            assert done.error["hint"]
    assert failed


def raised(error: Exception, capsys: pytest.CaptureFixture[str]) -> str:
    entry._report(error, GlobalOptions(as_json=True).output())
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("postgresql://fairlead:hunter2-hunter2-hunter2@db.internal:5432/prod is down"),
        ValueError("client_secret=s3cr3t-s3cr3t-s3cr3t-0123456789"),
        KeyError("Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmN"),
    ],
)
def test_S30_an_unforeseen_error_keeps_its_secrets(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    text = raised(error, capsys)
    assert "internal_error" in text
    for secret in ("hunter2", "s3cr3t", "eyJhbGciOiJIUzI1NiJ9"):
        assert secret not in text
    assert "Traceback" not in text


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_S30_every_error_has_a_code_and_a_way_out(kind: type[FairleadError]) -> None:
    """So whoever builds routes on them has words to give on that were meant for others."""
    assert re.fullmatch(r"[a-z][a-z0-9_]{2,40}", kind.code)
    assert 400 <= kind.http_status < 600
    assert not INNER.search(safe_text(kind.default_hint))
