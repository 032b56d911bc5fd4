"""``fairlead dlq export``: dead letters for other programs, page by page, without secrets (Q16)."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.connections.transfer import new_file
from fairlead.cli.dlq.options import OPEN, Fitting, Status, as_record
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, Limit
from fairlead.cli.kit.output import Record, json_text, plain

if TYPE_CHECKING:
    from fairlead.app import Fairlead

PAGE = 500
COLUMNS = (
    "dead_letter_id",
    "job_id",
    "tenant",
    "provider",
    "connection_id",
    "kind",
    "queue",
    "category",
    "code",
    "reason",
    "status",
    "resolution",
    "resolved_by",
    "resolved_why",
    "resolved_at",
    "replays",
    "first_at",
    "last_at",
    "args",
    "details",
    "history",
)


class Form(StrEnum):
    """How it is written."""

    JSONL = "jsonl"
    CSV = "csv"


def export(
    call: Invocation,
    fitting: Fitting,
    status: Status = OPEN,
    limit: Limit = 100_000,
    form: Annotated[
        Form, typer.Option("--format", help="jsonl: one JSON object per line. csv: with a head line.")
    ] = Form.JSONL,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="A new file (mode 0600). Default stdout."),
    ] = None,
) -> Exit | None:
    """Write entries for other programs, the oldest first. What is or looks like a secret is masked.

    In CSV args, details and history are JSON texts, and a cell that a spreadsheet would take for a formula
    begins with an apostrophe.
    """
    chosen = fitting.filter(status)

    async def work(fairlead: Fairlead, writer: _Writer) -> int:
        letters, count, last = fairlead.runtime.dead_letters, 0, None
        while count < limit:
            asked = min(PAGE, limit - count)
            page = await letters.find(chosen, limit=asked, cursor=last, oldest_first=True)
            for entry in page:
                writer.write(_masked(as_record(entry)))
            count += len(page)
            if len(page) < asked:
                break
            last = page[-1].dead_letter_id
        return count

    with _opened(output) as stream:
        count = call.with_fairlead(lambda fairlead: work(fairlead, _Writer(form, stream)))
    if output is not None:
        call.out.record({"file": output, "entries": count})
    return None


class _Writer:
    """Writes records one by one."""

    def __init__(self, form: Form, stream: IO[str]) -> None:
        self._form = form
        self._stream = stream
        if form is Form.CSV:
            self._row(COLUMNS)

    def write(self, record: Record) -> None:
        """One entry."""
        if self._form is Form.CSV:
            self._row([_cell(record[name]) for name in COLUMNS])
        else:
            self._stream.write(f"{json_text(record)}\n")

    def _row(self, cells: Any) -> None:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(cells)
        self._stream.write(line.getvalue())


def _masked(record: Record) -> Record:
    from fairlead.policy.text.redact import redact_values

    return {name: redact_values(value) for name, value in record.items()}


def _cell(value: object) -> object:
    """As a spreadsheet may have it: never a formula."""
    if value is None:
        return ""
    if isinstance(value, dict | list | tuple):
        value = json_text(value)
    text = str(plain(value)) if not isinstance(value, str | int | float) else value
    return f"'{text}" if isinstance(text, str) and text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


@contextmanager
def _opened(output: Path | None) -> Iterator[IO[str]]:
    """The new file, whole on disk at the end; or standard output."""
    if output is None:
        yield sys.stdout
        return
    with os.fdopen(new_file(output), "w", encoding="utf-8") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
