"""The one place where the command line prints (STYLE D "Words to people").

Data goes to stdout: a table or lines for people, one JSON object, or one object per line for lists. Words and
errors go to stderr and end with the way out. Colour, tables of lines and progress appear on a terminal only.

Names come from customers and providers, so nothing is printed as it came: control characters, escape codes
and the marks that reverse the direction of writing are shown as ``\\x1b`` and the like (S14).
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
    """Prints for one command. *as_json*: for machines; *quiet*: no words but errors; *verbose*: more of them.

    *color* False: never; else on a terminal, unless NO_COLOR is set, or always with FORCE_COLOR.
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
        """One thing: a JSON object, or a line per field under its JSON name, those of its parts dotted."""
        if self.as_json:
            self._json(record, self._stdout)
            return
        lines = [(printable(name), value) for name, value in _flat(record)]
        width = max((len(name) for name, _ in lines), default=0)
        for name, value in lines:
            label = self._styled(name.ljust(width), "bold", self._stdout)
            self._line(f"{label}  {self._cell(name, value, self._stdout)}", self._stdout)

    def rows(self, records: Iterable[Record], columns: Sequence[str], *, none: str = "nothing found") -> int:
        """A list: one JSON object per line with all fields, or a table of *columns*; how many there were."""
        if self.as_json:
            return sum(self._json(record, self._stdout) for record in records)
        found = list(records)
        if not found:
            self.say(none)
        elif self._is_terminal(self._stdout):
            self._console(self._stdout).print(rich_table(found, columns))
        else:
            self._plain_table(found, columns)
        return len(found)

    def heading(self, title: str) -> None:
        """Stands above a part of a longer answer to a person."""
        if not self.as_json:
            self._line(self._styled(_heading(title), "bold", self._stdout), self._stdout)

    def text(self, text: str) -> None:
        """A text of our own making as it is (SQL, a script, a page)."""
        self._line(text.removesuffix("\n"), self._stdout)

    # ---- words ---------------------------------------------------------------------------------

    def say(self, words: str) -> None:
        """Tell a person; silent with --quiet."""
        if not self.quiet:
            self._line(printable(words), self._stderr)

    def detail(self, words: str) -> None:
        """Tell a person who asked for more (--verbose)."""
        if self.verbose:
            self._line(printable(words), self._stderr)

    def detail_lines(self, text: str) -> None:
        """The same, over several lines."""
        if self.verbose:
            self._line(printable(text.rstrip(), lines=True), self._stderr)

    def warn(self, words: str) -> None:
        """Tell of a danger, also with --quiet."""
        self._line(f"{self._styled('warning:', _DOUBTFUL, self._stderr)} {printable(words)}", self._stderr)

    def error(self, what: str, *, hint: str, code: str = "failed", **more: object) -> None:
        """What went wrong and the way out; with --json one object on stderr."""
        if self.as_json:
            known = {name: value for name, value in more.items() if value is not None}
            self._json({"error": {"code": code, "message": what, "hint": hint, **known}}, self._stderr)
            return
        shown = printable(what, lines=True)
        self._line(f"{self._styled('error:', _BAD, self._stderr)} {shown}", self._stderr)
        self._line(f"{self._styled('hint:', 'cyan', self._stderr)} {printable(hint)}", self._stderr)

    def problem(self, error: FairleadError) -> None:
        """One of our errors, with all it carries."""
        named = {"tenant": error.tenant, "provider": error.provider}
        where = ", ".join(f"{noun} {value!r}" for noun, value in named.items() if value)
        what = error.message.strip()
        self.error(
            what if self.as_json or not where else f"{what} ({where})",
            hint=error.hint,
            code=error.code,
            **named,
            category=error.category,
            reason=error.reason,
            retry_after_s=error.retry_after_s,
        )

    @contextmanager
    def progress(self, words: str) -> Iterator[Callable[[str], None]]:
        """A line that changes while work goes on; nothing at all outside of a terminal."""
        if self.quiet or self.as_json or not self._is_terminal(self._stderr):
            yield lambda _: None
            return
        from rich.text import Text

        with self._console(self._stderr).status(Text(printable(words))) as status:
            yield lambda now: status.update(Text(printable(now)))

    # ---- how -----------------------------------------------------------------------------------

    def _json(self, value: object, stream: IO[str]) -> int:
        # ASCII only: a name can neither forge a line nor reach the terminal as an escape code
        self._line(json_text(value), stream)
        return 1

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
        return self._is_terminal(stream) and os.environ.get("TERM") != "dumb"

    @staticmethod
    def _is_terminal(stream: IO[str]) -> bool:
        return stream.isatty()

    @staticmethod
    def _line(text: str, stream: IO[str]) -> None:
        try:
            stream.write(f"{text}\n")
        except UnicodeEncodeError:  # the terminal's encoding lacks a character of a name
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


def printable(value: object, *, lines: bool = False) -> str:
    """*value* as text that a terminal shows and never obeys; *lines* True leaves line breaks as they are.

    >>> printable("acme\\x1b[31m")
    'acme\\\\x1b[31m'
    """
    text = str(value)
    return _UNSAFE.sub(
        lambda found: found[0] if lines and _LINES.match(found[0]) else _escaped(found[0]), text
    )


def _escaped(character: str) -> str:
    return ascii(character)[1:-1]


def plain(value: object) -> Any:
    """*value* for JSON: times in UTC, ids and paths as text, secrets as ***; our values as objects."""
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
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Iterable):
        return list(value)
    return str(value)


def duration(length_s: float) -> str:
    """A length of time in its two largest units.

    >>> [duration(length) for length in (0.25, 59, 90, 3720, 90_000, -30)]
    ['0.2s', '59s', '1m 30s', '1h 2m', '1d 1h', '-30s']
    """
    if length_s < 0:
        return f"-{duration(-length_s)}"
    if length_s < 1:
        return f"{length_s:.1f}s" if length_s else "0s"
    left, parts = int(length_s), []
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, left = divmod(left, unit_s)
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
    """The name of a field for people: its value tells the unit."""
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
        return duration(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, list | tuple) and all(isinstance(each, str | int) for each in value):
        return ", ".join(printable(each) for each in value) or "-"
    if isinstance(value, Mapping | list | tuple):
        return json_text(value) if value else "-"
    return printable(plain(value) if not isinstance(value, str | int | float) else value)


def _style(value: object) -> str:
    return _STYLES.get(value, "") if isinstance(value, str) else ""
