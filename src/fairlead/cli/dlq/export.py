"""``fairlead dlq export``: dead letters for other programs, without secrets. Spec: Q16."""

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
from fairlead.cli.dlq.options import OPEN, DeadLetterFilterOptions, Status, entry_record
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation, Limit
from fairlead.cli.kit.output import Record, json_text, plain
from fairlead.policy.text.redact import redact_values

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime

PAGE = 500
_NAMES = (
    "dead_letter_id job_id tenant provider connection_id kind queue category code reason status resolution"
    " resolved_by resolution_reason resolved_at replays first_at last_at args details history"
)
COLUMNS = _NAMES.split()


class Form(StrEnum):
    """The format of the export."""

    JSONL = "jsonl"
    CSV = "csv"


def export(
    call: Invocation,
    filter_: DeadLetterFilterOptions,
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
    """Write entries for other programs, the oldest first. Anything that is or looks like a secret is masked.

    In CSV args, details and history are JSON texts, and a cell that a spreadsheet would take for a formula
    begins with an apostrophe.
    """
    filter_by = filter_.filter(status)

    async def work(runtime: Runtime, writer: _Writer) -> int:
        count, last = 0, None
        while count < limit:
            size = min(PAGE, limit - count)
            page = await runtime.dead_letters.find(filter_by, limit=size, cursor=last, oldest_first=True)
            for entry in page:
                writer.write(_redacted(entry_record(entry)))
            count += len(page)
            if len(page) < size:
                break
            last = page[-1].dead_letter_id
        return count

    with _opened(output) as stream:
        count = call.with_runtime(lambda runtime: work(runtime, _Writer(form, stream)))
    if output is not None:
        call.out.record({"file": output, "entries": count})
    return None


class _Writer:
    """A writer of records in one format."""

    def __init__(self, form: Form, stream: IO[str]) -> None:
        self._form = form
        self._stream = stream
        if form is Form.CSV:
            self._row(COLUMNS)

    def write(self, record: Record) -> None:
        """Write one entry."""
        if self._form is Form.CSV:
            self._row([_cell(record[name]) for name in COLUMNS])
        else:
            self._stream.write(f"{json_text(record)}\n")

    def _row(self, cells: Any) -> None:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(cells)
        self._stream.write(line.getvalue())


def _redacted(record: Record) -> Record:
    return {name: redact_values(value) for name, value in record.items()}


def _cell(value: object) -> object:
    """Return *value* as a cell that no spreadsheet takes for a formula."""
    if value is None:
        return ""
    if isinstance(value, dict | list | tuple):
        value = json_text(value)
    text = str(plain(value)) if not isinstance(value, str | int | float) else value
    return f"'{text}" if isinstance(text, str) and text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


@contextmanager
def _opened(output: Path | None) -> Iterator[IO[str]]:
    """Open a new file, which is synced to disk at the end; or use standard output."""
    if output is None:
        yield sys.stdout
        return
    with os.fdopen(new_file(output), "w", encoding="utf-8") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
