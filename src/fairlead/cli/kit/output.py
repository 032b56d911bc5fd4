"""All printing of the command line.

Data goes to stdout: a table or lines for people, one JSON object, or one object per line for lists. Messages and
errors go to stderr, and errors end with a hint. Colour, boxes and progress appear on a terminal only.

Names come from customers and providers, so no text is printed unescaped: control characters, escape codes and
marks that reverse the direction of writing are shown as ``\\x1b`` and the like. Spec: S14.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import UUID

from fairlead._core.secret import Secret
from fairlead.errors import FairleadError
from fairlead.policy.text.safe import safe_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Record = Mapping[str, Any]

_MOST_BYTES = 1 << 20
# C0, DEL, C1; line and paragraph separators; marks that reorder text; halves of surrogate pairs.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_LINES = re.compile("[\n\t]")

_GOOD, _DOUBTFUL, _BAD = "green", "yellow", "red"
_STYLES = {
    **dict.fromkeys(("ok", "active", "alive", "completed", "created", "replaced", "done", "closed"), _GOOD),
    **dict.fromkeys(("warn", "late", "unknown", "retryable", "half_open", "kept", "skipped"), _DOUBTFUL),
    **dict.fromkeys(
        ("fail", "failed", "needs_reauth", "discarded", "lost", "open", "paused", "unhealthy"), _BAD
    ),
}


class Output:
    """The output of one command.

    Args:
        as_json: Print JSON for programs.
        quiet: Print no messages but warnings and errors.
        verbose: Print details too.
        color: False: never. True: on a terminal unless NO_COLOR is set, or always with FORCE_COLOR.
    """

    def __init__(
        self,
        *,
        as_json: bool = False,
        quiet: bool = False,
        verbose: bool = False,
        color: bool = True,
        stdout: IO[str] | None = None,
        stderr: IO[str] | None = None,
    ) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = verbose
        self._color = color
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr

    # ---- data ----------------------------------------------------------------------------------

    def record(self, record: Record) -> None:
        """Print one thing: a JSON object, or a line for each field; nested fields have dotted names."""
        if self.as_json:
            self._json(record, self._stdout)
            return
        lines = [(printable(name), value) for name, value in _flat(record)]
        width = max((len(name) for name, _ in lines), default=0)
        for name, value in lines:
            label = self._styled(name.ljust(width), "bold", self._stdout)
            self._line(f"{label}  {self._cell(name, value, self._stdout)}", self._stdout)

    def rows(self, records: Iterable[Record], columns: Sequence[str], *, none: str = "nothing found") -> None:
        """Print a list: one JSON object per line with all fields, or a table of *columns*."""
        if self.as_json:
            for record in records:
                self._json(record, self._stdout)
            return
        table = list(records)
        if not table:
            self.say(none)
        elif self._stdout.isatty():
            self._console(self._stdout).print(rich_table(table, columns))
        else:
            self._plain_table(table, columns)

    def heading(self, title: str) -> None:
        """Print a heading above a part of a longer output for people."""
        if not self.as_json:
            self._line(self._styled(_heading(title), "bold", self._stdout), self._stdout)

    def text(self, text: str) -> None:
        """Print a text of our own unescaped (SQL, a script, a page)."""
        self._line(text.removesuffix("\n"), self._stdout)

    # ---- messages -----------------------------------------------------------------------------

    def say(self, words: str) -> None:
        """Print a message, unless --quiet is given."""
        if not self.quiet:
            self._line(printable(words), self._stderr)

    def detail(self, words: str) -> None:
        """Print a message only with --verbose."""
        if self.verbose:
            self._line(printable(words), self._stderr)

    def detail_lines(self, text: str) -> None:
        """Print several lines only with --verbose."""
        if self.verbose:
            self._line(printable(text.rstrip(), lines=True), self._stderr)

    def warn(self, words: str) -> None:
        """Print a warning, also with --quiet."""
        self._line(f"{self._styled('warning:', _DOUBTFUL, self._stderr)} {printable(words)}", self._stderr)

    def error(self, message: str, *, hint: str, code: str = "failed", **more: object) -> None:
        """Print an error with its hint; with --json as one object on stderr."""
        if self.as_json:
            fields = {name: value for name, value in more.items() if value is not None}
            self._json({"error": {"code": code, "message": message, "hint": hint, **fields}}, self._stderr)
            return
        text = printable(message, lines=True)
        self._line(f"{self._styled('error:', _BAD, self._stderr)} {text}", self._stderr)
        self._line(f"{self._styled('hint:', 'cyan', self._stderr)} {printable(hint)}", self._stderr)

    def problem(self, error: FairleadError) -> None:
        """Print one of our errors with all of its attributes."""
        named = {"tenant": error.tenant, "provider": error.provider}
        where = ", ".join(f"{noun} {value!r}" for noun, value in named.items() if value)
        message = error.message.strip()
        self.error(
            message if self.as_json or not where else f"{message} ({where})",
            hint=error.hint,
            code=error.code,
            **named,
            category=error.category,
            reason=error.reason,
            retry_after_s=error.retry_after_s,
        )

    @contextmanager
    def progress(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show a changing line during the block, on a terminal only; yields its setter."""
        if self.quiet or self.as_json or not self._stderr.isatty():
            yield lambda _: None
            return
        from rich.text import Text

        with self._console(self._stderr).status(Text(printable(text))) as status:
            yield lambda text: status.update(Text(printable(text)))

    # ---- streams ------------------------------------------------------------------------------

    def _json(self, value: object, stream: IO[str]) -> None:
        # ASCII only: a name can neither forge a line nor reach the terminal as an escape code
        self._line(json_text(value), stream)

    def _plain_table(self, records: Sequence[Record], columns: Sequence[str]) -> None:
        grid = [[_heading(name) for name in columns]]
        grid += [[_shown(name, record.get(name)) for name in columns] for record in records]
        widths = [max(len(row[at]) for row in grid) for at in range(len(columns))]
        for row in grid:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self._line("  ".join(cells).rstrip(), self._stdout)

    def _console(self, stream: IO[str]) -> Console:
        from rich.console import Console

        has_color = self._has_color(stream)
        return Console(file=stream, color_system="auto" if has_color else None, highlight=False)

    def _cell(self, name: str, value: object, stream: IO[str]) -> str:
        return self._styled(_shown(name, value), _style(value), stream)

    def _styled(self, text: str, style: str, stream: IO[str]) -> str:
        codes = {"bold": "1", _GOOD: "32", _DOUBTFUL: "33", _BAD: "31", "cyan": "36"}
        if not style or not self._has_color(stream):
            return text
        return f"\x1b[{codes[style]}m{text}\x1b[0m"

    def _has_color(self, stream: IO[str]) -> bool:
        if not self._color or os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return stream.isatty() and os.environ.get("TERM") != "dumb"

    @staticmethod
    def _line(text: str, stream: IO[str]) -> None:
        try:
            stream.write(f"{text}\n")
        except UnicodeEncodeError:  # the terminal's encoding lacks a character
            stream.write(text.encode("ascii", "backslashreplace").decode() + "\n")
        stream.flush()


def rich_table(records: Sequence[Record], columns: Sequence[str], title: str | None = None) -> Table:
    """Return a table of *columns* for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(*map(_heading, columns), title=title, title_justify="left", title_style="bold")
    table.box, table.pad_edge = box.SIMPLE_HEAD, False
    for record in records:
        cells = [(_shown(name, record.get(name)), record.get(name)) for name in columns]
        table.add_row(*(Text(shown, style=_style(value)) for shown, value in cells))
    return table


# ---- values --------------------------------------------------------------------------------------


def fields_of(value: object, names: str) -> dict[str, Any]:
    """Return the named attributes of *value*; ``new=old`` renames one.

    >>> fields_of(UTC, "zone=__class__")
    {'zone': <class 'datetime.timezone'>}
    """
    pairs = (name.partition("=") for name in names.split())
    return {new: getattr(value, old or new) for new, _, old in pairs}


def record_of(value: Any) -> dict[str, Any]:
    """Return all fields of a dataclass."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def printable(value: object, *, lines: bool = False) -> str:
    """Return *value* as text with control characters escaped; *lines* keeps line breaks and tabs.

    >>> printable("acme\\x1b[31m")
    'acme\\\\x1b[31m'
    """
    text = str(value)
    return _UNSAFE.sub(
        lambda match: match[0] if lines and _LINES.match(match[0]) else _escaped(match[0]), text
    )


def _escaped(character: str) -> str:
    return ascii(character)[1:-1]


def plain(value: object) -> Any:
    """Return *value* for JSON: times in UTC, ids and paths as text, secrets as ***, dataclasses as objects."""
    if isinstance(value, Secret):
        return str(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, UUID | Path):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return record_of(value)
    if isinstance(value, Iterable):
        return list(value)
    return str(value)


def format_duration(length_s: float) -> str:
    """Return a duration in its two largest units.

    >>> [format_duration(length) for length in (0.25, 59, 90, 3720, 90_000, -30)]
    ['0.2s', '59s', '1m 30s', '1h 2m', '1d 1h', '-30s']
    """
    if length_s < 0:
        return f"-{format_duration(-length_s)}"
    if length_s < 1:
        return f"{length_s:.1f}s" if length_s else "0s"
    rest_s, parts = int(length_s), []
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, rest_s = divmod(rest_s, unit_s)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def _flat(record: Record, above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _heading(name: str) -> str:
    """Return the name of a field for people, without its unit, which the value shows."""
    return printable(name.removesuffix("_s")).replace("_", " ")


def json_text(value: object) -> str:
    """Return *value* as JSON in ASCII. Never raises, so that one odd value does not fail a whole list.

    Values without a JSON form become text (policy/text/safe.py): NaN, infinity, integers of over 256 bits,
    and values that are nested too deep.
    """
    try:
        return json.dumps(value, default=plain, ensure_ascii=True, allow_nan=False)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return json.dumps(json.loads(safe_json(value, _MOST_BYTES)), ensure_ascii=True)


def _shown(name: str, value: object) -> str:
    """Return *value* for a person to read. Like json_text, this never raises."""
    try:
        return _readable(name, value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return printable(json_text(value))


def _readable(name: str, value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and name.endswith("per_s"):
        return f"{value:g}/s"
    if isinstance(value, int | float) and name.endswith("_s"):
        return format_duration(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, list | tuple) and all(isinstance(item, str | int) for item in value):
        return ", ".join(printable(item) for item in value) or "-"
    if isinstance(value, Mapping | list | tuple):
        return json_text(value) if value else "-"
    return printable(plain(value) if not isinstance(value, str | int | float) else value)


def _style(value: object) -> str:
    return _STYLES.get(value, "") if isinstance(value, str) else ""
