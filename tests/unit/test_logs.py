"""One line per event and record, JSON or columns, nothing forged, nothing lost in silence (O3, S14, E50)."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any
from uuid import UUID

import pytest

from fairlead._core.secret import Secret
from fairlead.assembly.logs import LIBRARY_LEVELS, MAX_TRACE_BYTES, Logs, _console, configure, log_event
from fairlead.events import (
    DeadLettersProcessed,
    Event,
    HandlersStuck,
    JobFinished,
    NeedsReauth,
    ScheduleFired,
    StoreUnreachable,
)
from tools.reference import our_events

JOB = UUID("0192f0c1-2b3c-7def-8abc-0123456789ab")
FAILED = JobFinished(
    job_id=JOB,
    kind="token.refresh",
    tenant="acme",
    provider="xero",
    outcome="retried",
    attempt=3,
    ran_s=0.12345,
    category="transient_server",
    code="transient_failure",
    reason="the token endpoint answered 503",
    next_retry_s=4.5,
)
EVIL = 'acme\n{"level":"error"}\r\x1b[2K\x00\u2028\u202eevil\ud800"'


class Output:
    """Logs into a pipe; ``lines`` ends them and gives what came out."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        self._logs: Logs | None = None

    def open(self, level: str = "debug", format: str = "json") -> Logs:
        self._logs = configure(level, format, fd=self._write_fd)
        return self._logs

    def text(self) -> str:
        if self._logs is not None:
            self._logs.close()
        os.close(self._write_fd)
        with os.fdopen(self._read_fd, "rb") as reader:
            return reader.read().decode()

    def read(self, count: int) -> list[dict[str, Any]]:
        """The next *count* lines, as soon as they are there."""
        with os.fdopen(os.dup(self._read_fd), "rb") as reader:
            return [json.loads(reader.readline()) for _ in range(count)]

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]


@pytest.fixture
def out() -> Iterator[Output]:
    made = Output()
    yield made
    if made._logs is not None:
        made._logs.close()


def test_a_failed_run_is_one_line_with_all_that_decides(out: Output) -> None:
    out.open()
    log_event(FAILED)
    (line,) = out.lines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line.pop("timestamp"))
    assert line == {
        "level": "warning",
        "event": "job_finished",
        "job_id": str(JOB),
        "kind": "token.refresh",
        "tenant": "acme",
        "provider": "xero",
        "outcome": "retried",
        "attempt": 3,
        "ran_s": 0.123,
        "category": "transient_server",
        "code": "transient_failure",
        "reason": "the token endpoint answered 503",
        "next_retry_s": 4.5,
    }


def test_traceback_of_a_handler_error_is_in_the_log(out: Output) -> None:
    trace = "Traceback (most recent call last):\n  File \"shop/jobs.py\", line 7, in sync\nKeyError: 'price'"
    out.open()
    log_event(replace(FAILED, traceback=trace))
    (line,) = out.lines()
    assert line["traceback"] == trace
    shown = _console(colors=False)(line)
    assert shown.endswith("".join(f"\n    {part}" for part in trace.split("\n")))
    assert shown.count("KeyError") == 1


@pytest.mark.parametrize(
    ("outcome", "level"),
    [
        ("completed", "debug"),
        ("snoozed", "info"),
        ("cancelled", "info"),
        ("retried", "warning"),
        ("discarded", "error"),
    ],
)
def test_runs_that_failed_are_told_louder(out: Output, outcome: str, level: str) -> None:
    out.open()
    log_event(JobFinished(JOB, "work", "acme", None, outcome, 1, 0.1))
    (line,) = out.lines()
    assert line["level"] == level
    assert "provider" not in line


def test_all_kinds_of_fields_are_json(out: Output) -> None:
    out.open()
    log_event(DeadLettersProcessed({"redriven": 2}))
    log_event(HandlersStuck(("a", "b")))
    counts, stuck = out.lines()
    assert (counts["counts"], stuck["kinds"]) == ({"redriven": 2}, ["a", "b"])


def test_the_level_holds_back_what_is_quieter(out: Output) -> None:
    out.open("warning")
    log_event(ScheduleFired("token.scan", 0))
    logging.getLogger("some.library").info("chat")
    log_event(StoreUnreachable("postgres", "gone"))
    assert [line["event"] for line in out.lines()] == ["store_unreachable"]


def test_records_of_libraries_are_lines_too(out: Output) -> None:
    out.open()
    logging.getLogger("some.library").warning("%d things of %s", 3, "acme")
    (line,) = out.lines()
    assert (line["event"], line["logger"], line["level"]) == ("3 things of acme", "some.library", "warning")


def test_a_traceback_stays_within_its_line_and_shows_no_values(out: Output) -> None:
    out.open()
    local = "a value of a variable"
    try:
        raise ValueError("outer") from KeyError(len(local))
    except ValueError:
        logging.getLogger("some.library").exception("it failed")
    (line,) = out.lines()
    assert line["event"] == "it failed"
    assert line["exception"].startswith("KeyError: 21\n")
    assert line["exception"].endswith("ValueError: outer")
    assert "test_logs.py" in line["exception"]


def test_a_record_that_cannot_be_formatted_is_told_without_its_arguments(
    out: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    out.open()
    logging.getLogger("some.library").info("%d", "an argument")
    (line,) = out.lines()
    assert line["event"] == "a message that cannot be formatted (TypeError)"
    assert "an argument" not in "".join(capsys.readouterr())


def test_hostile_objects_cannot_break_logging(out: Output) -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    out.open()
    logger = logging.getLogger("some.library")
    logger.info(Hostile())
    try:
        raise Hostile
    except Hostile:
        logger.exception("caught")
    log_event(StoreUnreachable("postgres", Hostile()))  # type: ignore[arg-type]
    first, second, third = out.lines()
    assert first["event"] == "a message that cannot be formatted (RuntimeError)"
    assert "Hostile" in second["exception"]
    assert third["event"] == "store_unreachable"


def test_a_traceback_is_masked_before_it_is_cut(out: Output) -> None:
    out.open()
    secret = Secret("correct horse battery staple nine lives")
    try:
        raise ValueError(f"it said {secret.reveal()}{'B' * (MAX_TRACE_BYTES - 20)}")
    except ValueError:
        logging.getLogger("some.library").exception("large")
    assert "nine" not in out.text()


def test_a_huge_text_is_cut(out: Output) -> None:
    out.open()
    logging.getLogger("some.library").info("x " * 1_000_000)
    try:
        raise ValueError("begin " + "y " * 1_000_000 + "the end")
    except ValueError:
        logging.getLogger("some.library").exception("large")
    text = out.text()
    assert len(text) < 60_000
    assert text.splitlines()[1].endswith('the end"}')


def test_reports_of_python_itself_are_lines(out: Output) -> None:
    logs = out.open()
    thread = threading.Thread(target=lambda: 1 / 0, name="odd")
    thread.start()
    thread.join()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old ways", UserWarning, stacklevel=1)
    error = ValueError("nowhere to go")
    sys.excepthook(ValueError, error, None)
    assert logs.flush(10)
    crashed, warned, died = out.lines()
    assert (crashed["event"], crashed["level"]) == ("thread odd crashed", "error")
    assert crashed["exception"].endswith("ZeroDivisionError: division by zero")
    assert "old ways" in warned["event"]
    assert (died["event"], died["level"]) == ("crashed", "critical")
    assert died["exception"] == "ValueError: nowhere to go"


def test_closing_gives_everything_back(out: Output) -> None:
    root = logging.getLogger()
    levels = lambda: [logging.getLogger(name).level for name in LIBRARY_LEVELS]  # noqa: E731
    before = (
        list(root.handlers),
        root.level,
        levels(),
        sys.excepthook,
        threading.excepthook,
        sys.unraisablehook,
    )
    out.open("error")
    assert levels() == list(LIBRARY_LEVELS.values())
    out.text()
    assert before == (
        list(root.handlers), root.level, levels(), sys.excepthook, threading.excepthook, sys.unraisablehook
    )  # fmt: skip


def test_a_program_that_embeds_fairlead_sees_events_in_its_own_logs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fairlead"):
        log_event(NeedsReauth("acme", "xero", "default", JOB, "refresh_token=hunter2 was refused"))
        log_event(ScheduleFired("token.scan", 0))
        log_event(StoreUnreachable("postgres", EVIL))
    first, second = (record.getMessage() for record in caplog.records)
    assert first == (
        f"needs_reauth tenant=acme provider=xero account=default connection_id={JOB}"
        " reason=refresh_token=*** was refused"
    )
    assert second.isprintable()


# ---- nothing forged (S14) ----------------------------------------------------------------------

EVILS: list[Callable[[], object]] = [
    lambda: log_event(NeedsReauth(EVIL, EVIL, EVIL, JOB, EVIL, EVIL)),
    lambda: logging.getLogger("some.library").error(EVIL),
    lambda: logging.getLogger(EVIL).error("x"),
    lambda: logging.getLogger("some.library").error("x", exc_info=ValueError(EVIL)),
]


@pytest.mark.parametrize("name", ['secret="', "token=", "-----BEGIN PRIVATE KEY-----", "it: a_token:"])
def test_a_name_hides_nothing_of_what_stands_behind_it(out: Output, name: str) -> None:
    """What is masked is masked in its field: neither the quotes after it nor the next fields go with it."""
    out.open()
    log_event(replace(FAILED, tenant=name, reason=f"the answer had no {name}"))
    logging.getLogger("some.library").error("password=%s", "hunter2")
    line, other = out.lines()
    assert {key: line[key] for key in ("category", "code", "outcome", "attempt")} == {
        "category": FAILED.category, "code": FAILED.code, "outcome": FAILED.outcome, "attempt": FAILED.attempt
    }  # fmt: skip
    assert other["event"] == "password=***"


@pytest.mark.parametrize("tell", EVILS)
def test_json_has_one_valid_line_for_each_whatever_the_names_hold(
    out: Output, tell: Callable[[], object]
) -> None:
    out.open()
    tell()
    text = out.text()
    assert text.isascii()
    assert text.endswith("\n")
    assert len(text.splitlines()) == 1
    assert json.loads(text)["level"] in ("warning", "error")
    assert text[:-1].isprintable()


@pytest.mark.parametrize("tell", EVILS)
def test_columns_cannot_be_forged_either(out: Output, tell: Callable[[], object]) -> None:
    out.open(format="console")
    tell()
    first, *more = out.text().rstrip("\n").split("\n")
    assert first.isprintable()
    assert re.match(r"\d{4}-", first)
    assert all(line.isprintable() and line.startswith("    ") for line in more)


def test_a_pipe_gets_json_and_a_terminal_columns(out: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    out.open(format="auto")
    log_event(FAILED)
    assert out.lines()[0]["event"] == "job_finished"
    ours, theirs = os.openpty()
    for no_color, colours in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        logs = configure("info", "auto", fd=theirs)
        log_event(FAILED)
        logs.close()
        seen = os.read(ours, 10_000).decode()
        assert ("\x1b[" in seen) is colours
        plain = re.sub(r"\x1b\[[0-9;]*m", "", seen)
        assert "job_finished" in plain
        assert "next_retry_s=4.5" in plain
    os.close(ours)
    os.close(theirs)


# ---- never waits (E50) -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_reader_who_stops_stops_nobody_and_what_is_lost_is_told(out: Output) -> None:
    logs, long = out.open(), StoreUnreachable("postgres", "gone " * 1600)
    for _ in range(700):  # more than the pipe and the queue hold; nobody reads
        log_event(long)
    assert not logs.flush(0.01)
    lost = logs.dropped
    assert lost > 0
    lines = out.read(700 - lost + 1)
    assert [line["count"] for line in lines if line["event"] == "log_dropped"] == [lost]
    assert logs.flush(10)
    assert logs.dropped == lost


CRASHING = """
import logging, os, sys
from fairlead.assembly.logs import configure
read_fd, write_fd = os.pipe()
logs = configure("info", "json", fd=write_fd)
for number in range(200):
    logging.getLogger("x").info("line %d " + "y " * 400, number)
raise SystemExit(3)
"""


@pytest.mark.slow
def test_nothing_is_said_after_a_line_that_is_written_by_half(out: Output) -> None:
    """Closed although nobody reads: words would cut into the line that the writer still holds."""
    logs = out.open()
    for _ in range(20):  # more than a pipe holds
        logging.getLogger("some.library").warning("x" * 8000)
    assert not logs.close()
    logs.say("draining")
    assert logs.dropped == 1
    assert {line["event"] for line in out.read(21)} == {"x" * 8000, "log_dropped"}


@pytest.mark.slow
def test_a_process_ends_although_nobody_reads_its_logs() -> None:
    done = subprocess.run([sys.executable, "-c", CRASHING], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (3, b"")


def test_each_event_can_be_logged(out: Output) -> None:
    """Whatever fields an event has, they become JSON."""
    samples = {"UUID": JOB, "str": "x", "int": 1, "float": 0.5, "bool": True}
    out.open()
    names = []
    for kind in our_events():
        given = {field.name: samples.get(str(field.type).split(" ")[0], {"a": 1}) for field in fields(kind)}
        event: Event = kind(**given)
        log_event(event)
        names.append(kind.name)
    assert [line["event"] for line in out.lines()] == names
