"""Structured logs: one line per event, on stderr, redacted, never waited for (O3, S13, S14, E50).

    event > log_event > stdlib logging > LogHandler: render, redact > LineWriter's thread > stderr

``log_event`` alone goes to the logger ``fairlead``, so a program that embeds fairlead sees the events in its
own logs. ``configure`` is for programs of ours: it takes over the root logger, so that what libraries and
crashes say passes the same filter. Lines are JSON, or on a terminal columns for people.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TypeGuard
from uuid import UUID

from fairlead.adapters.local.line_writer import LineWriter
from fairlead.events import Event, JobFinished
from fairlead.policy.text.redact import redact
from fairlead.policy.text.safe import BEYOND, clipped, safe_text

MAX_TEXT_BYTES = 8 << 10
MAX_TRACE_BYTES = 16 << 10
MAX_NAME = 400
TRACES = frozenset({"exception", "traceback"})
"""Fields of several lines; a person gets them below the line."""

NAMES = frozenset(
    {"tenant", "provider", "account", "kind", "kinds", "client_id", "queue", "schedule", "service", "store"}
    | {"host", "rule", "limit", "gate", "outcome", "category", "state", "then", "stage"}
)
"""Fields that hold names. Not searched for known secrets, as a tenant's key may be one, nor for what
looks like chance, as an id of yours may: a line without it helps nobody. All other nets are cast."""
CODES = frozenset({"code", "reason"})
"""Fields that hold a code of ours or a sentence. What a provider told was searched as it was read."""
QUIETED = {
    "aiohttp.access": logging.WARNING,
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "urllib3": logging.WARNING,
    "asyncpg.pool": logging.ERROR,
}
"""From which level on libraries are heard. Most log addresses, with whatever is in their queries. The pool
writes a traceback for each try to reach a database that is away; ``store_unreachable`` has told that once."""

_LOGGER = logging.getLogger("fairlead")
_LEVEL_OF = {"completed": "debug", "retried": "warning", "discarded": "error"}
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

Line = dict[str, Any]
Render = Callable[[Line], str]


# ---- events ------------------------------------------------------------------------------------


def log_event(event: Event) -> None:
    """Log *event*: subscribe it to a bus. Returns at once and does not raise."""
    level = logging.getLevelNamesMapping()[level_of(event).upper()]
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, _Told(event))


def level_of(event: Event) -> str:
    """The level of its class; runs that failed are told louder than those that did not."""
    return _LEVEL_OF.get(event.outcome, event.level) if isinstance(event, JobFinished) else event.level


def fields_of(event: Event) -> Line:
    """The fields of *event* as JSON has them, without secrets and without those that are None."""
    found = ((field.name, getattr(event, field.name)) for field in fields(event))
    return {name: _plain(name, value) for name, value in found if value is not None}


class _Told:
    """An event as the message of a log record: fields for us, a line of words for the logs of others."""

    __slots__ = ("event",)

    def __init__(self, event: Event) -> None:
        self.event = event

    def __str__(self) -> str:
        words = (f"{name}={_visible(str(value))}" for name, value in fields_of(self.event).items())
        return " ".join((self.event.name, *words))


def _plain(name: str, value: object) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(name, item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(name, item) for item in value]
    known = not (name in NAMES or (name in CODES and isinstance(value, str) and _CODE.fullmatch(value)))
    text = value if _is_plain(value) else safe_text(value, MAX_TEXT_BYTES, mask_known=known)
    return redact(text, shapes=name not in NAMES, mask_known=known)


def _is_plain(value: object) -> TypeGuard[str]:
    return type(value) is str and len(value) < MAX_NAME and value.isprintable()


# ---- lines -------------------------------------------------------------------------------------


def line_of(record: logging.LogRecord) -> Line:
    """The fields of one line: when, how grave, what, and the rest."""
    when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    line: Line = {"timestamp": when, "level": record.levelname.lower()}
    if isinstance(record.msg, _Told):
        return line | {"event": record.msg.event.name} | fields_of(record.msg.event)
    line |= {"event": redact(safe_text(_message(record), MAX_TEXT_BYTES)), "logger": record.name}
    if record.exc_info and record.exc_info[1] is not None:
        line["exception"] = _trace(record.exc_info[1])
    return line


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 (the logging module would print the arguments, bare, to stderr)
        return f"a message that cannot be formatted ({type(error).__name__})"


def _trace(error: BaseException) -> str:
    """The traceback without values of variables; of a long one its end, where the error is."""
    try:
        text = "".join(traceback.format_exception(error)).strip()
    except Exception as second:  # noqa: BLE001 (an error may be hostile in any of its methods)
        return f"{type(error).__name__}, and its text failed with {type(second).__name__}"
    kept = redact(text[-MAX_TRACE_BYTES - BEYOND :])
    if len(text) > MAX_TRACE_BYTES:
        kept = f"...\n{kept[min(BEYOND, len(text) - MAX_TRACE_BYTES) :][-MAX_TRACE_BYTES:]}"
    return clipped(kept, 4 * MAX_TRACE_BYTES)


def _visible(text: str) -> str:
    """*text* with escapes for all that moves a cursor, ends a line or turns the direction (S14)."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _json() -> Render:
    from structlog.processors import JSONRenderer

    render = JSONRenderer(serializer=json.dumps)  # ASCII: no line separator of any alphabet gets through
    return lambda line: str(render(None, "", line))


def _console(colors: bool) -> Render:
    from structlog.dev import ConsoleRenderer, plain_traceback

    render = ConsoleRenderer(colors=colors, sort_keys=False, exception_formatter=plain_traceback)

    def rendered(line: Line) -> str:
        trace = str(line.get("exception", line.get("traceback", "")))
        seen = {name: _visible(str(value)) for name, value in line.items() if name not in TRACES}
        indented = "".join(f"\n    {_visible(part)}" for part in trace.splitlines())
        return str(render(None, "", seen)) + indented

    return rendered


class LogHandler(logging.Handler):
    """Renders records and puts them into a writer. Emitting neither waits nor raises nor prints."""

    def __init__(self, render: Render, put: Callable[[bytes], object]) -> None:
        super().__init__()
        self._render = render
        self._put = put

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.text_of(line_of(record))
        except Exception as error:  # noqa: BLE001 (Handler.handleError would print the record, bare, to stderr)
            text = self.text_of(
                {"event": "log_line_failed", "level": "error", "reason": type(error).__name__}
            )
        self._put(text.encode())

    def text_of(self, line: Line) -> str:
        """Return the line to write, rendered and ended. Its fields were searched for secrets one by one."""
        return f"{self._render(line)}\n"


# ---- a program's own logs ----------------------------------------------------------------------


class Logs:
    """The logs of this process, from ``configure`` to ``close``."""

    def __init__(self, level: str, render: Render, fd: int) -> None:
        self._writer = LineWriter(fd, self._told)
        self._handler = LogHandler(render, self._writer.put)
        self._before = _Before()
        root = logging.getLogger()
        root.handlers[:] = [self._handler]
        root.setLevel(level.upper())
        for name, least in QUIETED.items():
            logging.getLogger(name).setLevel(least)
        logging.captureWarnings(True)
        sys.excepthook = self._crashed
        threading.excepthook = self._thread_crashed
        sys.unraisablehook = self._unraisable
        atexit.register(self.close)

    @property
    def dropped(self) -> int:
        """Lines lost because nobody read, or the disk was full."""
        return self._writer.dropped

    def say(self, words: str) -> None:
        """Words for people, in their turn among the lines. Waits for nobody."""
        self._writer.put(f"{words}\n".encode())

    def flush(self, timeout_s: float = 1.0) -> bool:
        """Wait until all is written; not for the event loop's thread while it has work."""
        return self._writer.flush(timeout_s)

    def close(self) -> bool:
        """Write what is queued, for a second at most, and give logging back; whether all was written.

        If it was not, the last line may be written by half: nobody else should write where it ends.
        """
        atexit.unregister(self.close)
        self._before.restore()
        return self._writer.close()

    def _told(self, count: int) -> bytes:
        when = logging.LogRecord("fairlead", logging.WARNING, "", 0, "log_dropped", None, None)
        line = line_of(when) | {"count": count}
        return self._handler.text_of(line).encode()

    def _crashed(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            self._before.excepthook(kind, error, trace)
            return
        _LOGGER.critical("crashed", exc_info=(kind, error, trace))
        self.flush()

    def _thread_crashed(self, crash: threading.ExceptHookArgs) -> None:
        if crash.exc_value is not None and not isinstance(crash.exc_value, SystemExit):
            name = crash.thread.name if crash.thread else "?"
            trace = (crash.exc_type, crash.exc_value, crash.exc_traceback)
            _LOGGER.error("thread %s crashed", name, exc_info=trace)

    def _unraisable(self, crash: sys.UnraisableHookArgs) -> None:
        error = crash.exc_value
        trace = (type(error), error, crash.exc_traceback) if error is not None else None
        _LOGGER.error("an error where none can be raised", exc_info=trace)


class _Before:
    """What logging was like, to be restored."""

    def __init__(self) -> None:
        root = logging.getLogger()
        self._handlers, self._level = list(root.handlers), root.level
        self._quieted = {name: logging.getLogger(name).level for name in QUIETED}
        self._hooks = (threading.excepthook, sys.unraisablehook)
        self.excepthook = sys.excepthook

    def restore(self) -> None:
        root = logging.getLogger()
        root.handlers[:] = self._handlers
        root.setLevel(self._level)
        for name, level in self._quieted.items():
            logging.getLogger(name).setLevel(level)
        logging.captureWarnings(False)
        threading.excepthook, sys.unraisablehook = self._hooks
        sys.excepthook = self.excepthook


def configure(level: str = "info", format: str = "auto", *, fd: int = 2) -> Logs:
    """Take over this process's logging; ``close`` what is given back at its end.

    *level* and *format* as in the settings ([log]); *fd* is written to, default stderr. On a terminal
    ``auto`` is for people, with colours unless NO_COLOR is set; else it is JSON.
    """
    terminal = os.isatty(fd)
    if format == "console" or (format == "auto" and terminal):
        return Logs(level, _console(terminal and not os.environ.get("NO_COLOR")), fd)
    return Logs(level, _json(), fd)
