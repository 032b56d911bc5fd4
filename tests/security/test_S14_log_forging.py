"""S14: whatever names and errors hold, a line of a log is one event and a line of a table is one row.

A worker runs for tenants with names made to forge, and its jobs die of errors made to forge; then everything
that it logged and every command that shows it is read by programs, and as a terminal would.
"""

from __future__ import annotations

import csv
import io
import json
import signal
import unicodedata

from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.jobs import PostgresJobStore
from fairlead.policy.text.redact import redact
from tests.security.figures import tell
from tests.support.cli import Shell
from tests.support.engine import IDS, new_job
from tests.support.standstill import patience

FORGED = '{"event": "forged", "level": "critical"}'
TENANTS = (
    '"}, {"event": "forged"',
    f"a, {FORGED}",
    "a\u2028" + FORGED,
    "a\u2029b\u061cc",
    "\u202emca\u202c",
    "\u2066a\u2069\u200e\u200f",
    "%0a%1b[31m",
    "\\n\\u001b[31m",
    "'; DROP TABLE job; --",
    "{0.__class__} {t} ${HOME} $(id) `id`",
    "[bold red]a[/] [link=file:///etc/passwd]x[/link]",
    "𝓪𝓬𝓶𝓮 ᎪᏟᎷᎬ",
    "=1+1",
    "| a | b |",
    'secret="',
    "token=",
    "token: a1b2c3d4e5 and",
    "-----BEGIN PRIVATE KEY-----",
)
"""What a tenant may be called (R36): anything without control characters."""
APP = """
import json
from pathlib import Path

from fairlead import Fairlead
from fairlead.errors import RequestRejectedError

fl = Fairlead.from_env()
ERRORS = json.loads(Path("errors.json").read_text())


@fl.job("dies", retry=0)
async def dies(context, number: int):
    raise (RequestRejectedError if number % 2 else ValueError)(ERRORS[number % len(ERRORS)])
"""
ERRORS = (
    f"it failed\n{FORGED}\r\n{FORGED}",
    "\x1b[2K\x1b[1A\x1b]0;owned\x07\x9b31m\x00 red",
    "\x08\x08\x7f\x85\u2028\u2029\u202e\u2066\ufeff\ud800",
    "a\tb\vc\fd\x1ce\x1df\x1eg",
)
SHOWN = (
    ("jobs", "list", "--limit", "1000"),
    ("dlq", "list", "--limit", "1000"),
    ("dlq", "stats", "--by", "tenant", "--top", "100"),
    ("tenants", "fairness", "--limit", "100"),
)
WITHIN_S = 120.0
DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Unicode's Bidi_Control."""


def obeyed(text: str) -> list[str]:
    """Characters that move a cursor, end a line elsewhere, or turn the direction of reading."""
    kinds = {"Cc", "Cs", "Zl", "Zp"}
    signs = {sign for sign in text if unicodedata.category(sign) in kinds or sign in DIRECTIONS}
    return sorted(map(repr, signs - {"\n"}))


async def test_nothing_is_forged(shell: Shell, database: Database) -> None:
    (shell.folder / "mine.py").write_text(APP)
    (shell.folder / "errors.json").write_text(json.dumps(ERRORS))
    jobs = [
        new_job("dies", tenant_id=tenant, args={"number": number})
        for tenant in TENANTS
        for number in range(len(ERRORS))
    ]
    await PostgresJobStore(database, IDS).enqueue(jobs)
    logged = await worked(shell, len(jobs))
    lines = [json.loads(line) for line in logged.splitlines() if not line.startswith("draining")]
    discarded = [line for line in lines if line["event"] == "job_discarded"]
    assert sorted(line["tenant"] for line in discarded) == sorted(
        redact(job.tenant_id, shapes=False) for job in jobs
    )
    assert {bool(line["category"] and line["code"]) for line in discarded} == {True}, (
        "a name hides what is told of it"
    )
    assert "forged" not in {line["event"] for line in lines}
    assert obeyed(logged) == []
    shown = await look(shell, len(jobs))
    tell("S14", n=len(lines) + shown, forged=0)


async def worked(shell: Shell, count: int) -> str:
    """What a worker logs while all *count* jobs die."""
    child = shell.start("run", "--app", "mine:fl", "--json")
    assert json.loads(await child.line())["event"] == "ready"
    texts: list[str] = []
    async with patience(WITHIN_S):
        while sum('"event": "job_discarded"' in line for line in texts) < count:
            texts.append(await child.word())
    child.kill(signal.SIGTERM)
    return "".join(texts) + (await shell.end(child)).err


async def look(shell: Shell, count: int) -> int:
    """Every table and every record, one line each; how many there were."""
    record_count = 0
    for arguments in SHOWN:
        table, records = await shell(*arguments), (await shell(*arguments, "--json")).rows
        assert len(table.out.splitlines()) == len(records) + 1, arguments
        assert obeyed(table.out) == [], arguments
        record_count += len(records)
        named = {record["tenant"] for record in records}
        assert named - {"fairlead"} == set(TENANTS), arguments
    letters = (await shell("dlq", "list", "--json", "--limit", "1000")).rows
    assert len(letters) == count
    for letter in letters[:4]:
        for arguments in (("dlq", "show", letter["dead_letter_id"]), ("jobs", "explain", letter["job_id"])):
            table = await shell(*arguments)
            assert obeyed(table.out) == [], arguments
            assert not [line for line in table.out.splitlines() if line.startswith("{")], arguments
            record_count += 1
    exported = (await shell("dlq", "export", "--format", "csv")).out
    entries = list(csv.DictReader(io.StringIO(exported, newline="")))
    assert {entry["dead_letter_id"] for entry in entries} == {letter["dead_letter_id"] for letter in letters}
    return record_count
