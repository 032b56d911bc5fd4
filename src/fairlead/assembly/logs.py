"""Structured logs: one redacted line for each event, on stderr, without waiting for the reader.

    event > log_event > stdlib logging > LogHandler: render, redact > LineWriter's thread > stderr

``log_event`` logs to the logger ``fairlead`` only, so a program that embeds fairlead gets the events in its
own logs. ``configure`` is for fairlead's commands. It replaces the handlers of the root logger, so that the
lines of libraries and the tracebacks of crashes are redacted too. Lines are JSON, or columns on a terminal.
Spec: O3, S13, S14, E50.
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
"""Fields of several lines. On a terminal they follow below the line."""

NAMES = frozenset(
    {"tenant", "provider", "account", "kind", "kinds", "client_id", "queue", "schedule", "service", "store"}
    | {"host", "rule", "limit", "gate", "outcome", "category", "state", "then", "stage"}
)
"""Fields that hold names. Known secrets are not masked in them, because a tenant's key may equal one. Nor are
strings that look random, because an id may look so, and a line is useless without it. All other rules apply."""
CODES = frozenset({"code", "reason"})
"""Fields that hold one of our codes or a sentence. Text of a provider was redacted when it was read."""
LIBRARY_LEVELS = {
    "aiohttp.access": logging.WARNING,
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "urllib3": logging.WARNING,
    "asyncpg.pool": logging.ERROR,
}
"""The lowest level that is logged, by logger. Most of these log URLs with their query strings. asyncpg's pool
logs a traceback for each failed attempt to reach the database, which ``store_unreachable`` reports once."""

_LOGGER = logging.getLogger("fairlead")
_LEVEL_OF = {"completed": "debug", "retried": "warning", "discarded": "error"}
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

Line = dict[str, Any]
Render = Callable[[Line], str]


# ---- events ------------------------------------------------------------------------------------


def log_event(event: Event) -> None:
    """Log *event*. Subscribe this function to an event bus: it returns at once and does not raise."""
    level = logging.getLevelNamesMapping()[level_of(event).upper()]
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, _EventMessage(event))


def level_of(event: Event) -> str:
    """Return the level of the event's class; that of a finished job depends on its outcome."""
    return _LEVEL_OF.get(event.outcome, event.level) if isinstance(event, JobFinished) else event.level


def fields_of(event: Event) -> Line:
    """Return the fields of *event* as JSON values, redacted, without those that are None."""
    values = ((field.name, getattr(event, field.name)) for field in fields(event))
    return {name: _plain(name, value) for name, value in values if value is not None}


class _EventMessage:
    """An event as the message of a log record. `LogHandler` reads its fields; other handlers get its text."""

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
    is_code = name in CODES and isinstance(value, str) and _CODE.fullmatch(value)
    mask_known = not (name in NAMES or is_code)
    text = value if _is_plain(value) else safe_text(value, MAX_TEXT_BYTES, mask_known=mask_known)
    return redact(text, shapes=name not in NAMES, mask_known=mask_known)


def _is_plain(value: object) -> TypeGuard[str]:
    return type(value) is str and len(value) < MAX_NAME and value.isprintable()


# ---- lines -------------------------------------------------------------------------------------


def line_of(record: logging.LogRecord) -> Line:
    """Return the fields of one line: timestamp, level, event, and those of the event or the logger."""
    timestamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    line: Line = {"timestamp": timestamp, "level": record.levelname.lower()}
    if isinstance(record.msg, _EventMessage):
        return line | {"event": record.msg.event.name} | fields_of(record.msg.event)
    line |= {"event": redact(safe_text(_message(record), MAX_TEXT_BYTES)), "logger": record.name}
    if record.exc_info and record.exc_info[1] is not None:
        line["exception"] = _trace(record.exc_info[1])
    return line


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 (the logging module would print the arguments without redaction)
        return f"a message that cannot be formatted ({type(error).__name__})"


def _trace(error: BaseException) -> str:
    """Return the redacted traceback without values of variables; only its end, with the error, if it is long."""
    try:
        text = "".join(traceback.format_exception(error)).strip()
    except Exception as second:  # noqa: BLE001 (any method of an exception may raise)
        return f"{type(error).__name__}, and its text failed with {type(second).__name__}"
    end = redact(text[-MAX_TRACE_BYTES - BEYOND :])
    if len(text) > MAX_TRACE_BYTES:
        end = f"...\n{end[min(BEYOND, len(text) - MAX_TRACE_BYTES) :][-MAX_TRACE_BYTES:]}"
    return clipped(end, 4 * MAX_TRACE_BYTES)


def _visible(text: str) -> str:
    """Escape characters that move the cursor, end a line or change the direction of text. Spec: S14."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _json() -> Render:
    from structlog.processors import JSONRenderer

    render = JSONRenderer(serializer=json.dumps)  # ASCII, so no Unicode line separator is written
    return lambda line: str(render(None, "", line))


def _console(colors: bool) -> Render:
    from structlog.dev import ConsoleRenderer, plain_traceback

    render = ConsoleRenderer(colors=colors, sort_keys=False, exception_formatter=plain_traceback)

    def rendered(line: Line) -> str:
        trace = str(line.get("exception", line.get("traceback", "")))
        columns = {name: _visible(str(value)) for name, value in line.items() if name not in TRACES}
        indented = "".join(f"\n    {_visible(part)}" for part in trace.splitlines())
        return str(render(None, "", columns)) + indented

    return rendered


class LogHandler(logging.Handler):
    """A handler that renders records and queues them for a writer. It never waits, raises or prints."""

    def __init__(self, render: Render, put: Callable[[bytes], object]) -> None:
        super().__init__()
        self._render = render
        self._put = put

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.text_of(line_of(record))
        except Exception as error:  # noqa: BLE001 (Handler.handleError would print the record without redaction)
            text = self.text_of(
                {"event": "log_line_failed", "level": "error", "reason": type(error).__name__}
            )
        self._put(text.encode())

    def text_of(self, line: Line) -> str:
        """Return the rendered line with its newline. The fields of *line* are redacted already."""
        return f"{self._render(line)}\n"


# ---- a program's own logs ----------------------------------------------------------------------


class Logs:
    """The logging of this process from ``configure`` to ``close``."""

    def __init__(self, level: str, render: Render, fd: int) -> None:
        self._writer = LineWriter(fd, self._loss_line)
        self._handler = LogHandler(render, self._writer.put)
        self._earlier = _LoggingState()
        root = logging.getLogger()
        root.handlers[:] = [self._handler]
        root.setLevel(level.upper())
        for name, lowest in LIBRARY_LEVELS.items():
            logging.getLogger(name).setLevel(lowest)
        logging.captureWarnings(True)
        sys.excepthook = self._crashed
        threading.excepthook = self._thread_crashed
        sys.unraisablehook = self._unraisable
        atexit.register(self.close)

    @property
    def dropped(self) -> int:
        """The number of lines that were lost because stderr was not read or the disk was full."""
        return self._writer.dropped

    def say(self, text: str) -> None:
        """Write *text*, which is meant for a person, after the lines that are queued. Does not wait."""
        self._writer.put(f"{text}\n".encode())

    def flush(self, timeout_s: float = 1.0) -> bool:
        """Block until all is written, *timeout_s* at most (default 1 s).

        It blocks the thread, so do not call it in an event loop that has work.

        Returns:
            Whether all was written.
        """
        return self._writer.flush(timeout_s)

    def close(self) -> bool:
        """Write what is queued, for a second at most, and restore the logging of before.

        Returns:
            Whether all was written. If not, half of the last line may be written, so write nothing more to
            the same stream.
        """
        atexit.unregister(self.close)
        self._earlier.restore()
        return self._writer.close()

    def _loss_line(self, count: int) -> bytes:
        record = logging.LogRecord("fairlead", logging.WARNING, "", 0, "log_dropped", None, None)
        line = line_of(record) | {"count": count}
        return self._handler.text_of(line).encode()

    def _crashed(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            self._earlier.excepthook(kind, error, trace)
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


class _LoggingState:
    """The state of logging at one moment, which can be restored."""

    def __init__(self) -> None:
        root = logging.getLogger()
        self._handlers, self._level = list(root.handlers), root.level
        self._library_levels = {name: logging.getLogger(name).level for name in LIBRARY_LEVELS}
        self._hooks = (threading.excepthook, sys.unraisablehook)
        self.excepthook = sys.excepthook

    def restore(self) -> None:
        root = logging.getLogger()
        root.handlers[:] = self._handlers
        root.setLevel(self._level)
        for name, level in self._library_levels.items():
            logging.getLogger(name).setLevel(level)
        logging.captureWarnings(False)
        threading.excepthook, sys.unraisablehook = self._hooks
        sys.excepthook = self.excepthook


def configure(level: str = "info", format: str = "auto", *, fd: int = 2) -> Logs:
    """Take over the logging of this process until the result is closed.

    Args:
        level: The lowest level that is logged, as in the settings ([log]).
        format: ``json``, ``console``, or ``auto``, which is ``console`` on a terminal and ``json`` elsewhere.
            ``console`` uses colours on a terminal unless NO_COLOR is set.
        fd: The descriptor to write to. Default stderr.
    """
    terminal = os.isatty(fd)
    if format == "console" or (format == "auto" and terminal):
        return Logs(level, _console(terminal and not os.environ.get("NO_COLOR")), fd)
    return Logs(level, _json(), fd)
