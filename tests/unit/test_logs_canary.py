"""Canaries: unique secrets in every place that reaches the logs, and none of them comes out (S13, T8)."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import random
import sys
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

import pytest

from fairlead._core.secret import Secret
from fairlead.assembly.event_bus import EventBus
from fairlead.assembly.logs import configure, log_event
from fairlead.events import (
    DeadLetterFailed,
    JobDiscarded,
    NeedsReauth,
    ServiceFailed,
    StoreUnreachable,
    TokenRefreshFailed,
)
from tests.support.canaries import Canaries

ID = UUID("0192f0c1-2b3c-7def-8abc-0123456789ab")


def coded(secret: str) -> list[str]:
    """*secret* as it travels."""
    raw = secret.encode()
    return [
        secret,
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
        quote(secret),
        raw.hex(),
    ]


def say_everything(canaries: Canaries) -> None:
    _in_events(canaries)
    _in_records(canaries)
    _in_exceptions(canaries)


def _in_events(canaries: Canaries) -> None:
    bus = EventBus()
    bus.subscribe(log_event)
    for form in coded(canaries.random()):
        bus.emit(StoreUnreachable("postgres", f"the server said {form}"))
    bus.emit(StoreUnreachable("postgres", f"postgresql://fairlead:{canaries.word()}@db/x is away"))
    bus.emit(ServiceFailed("scan", f"{{'client_secret': '{canaries.word()}', 'x': 1}}"))
    bus.emit(TokenRefreshFailed("acme", "xero", "b", ID, canaries.random(), None, canaries.of("APP_USR-")))
    bus.emit(NeedsReauth("acme", "xero", "b", ID, "gone", f"https://x.example/?code={canaries.word()}"))
    bus.emit(
        JobDiscarded(ID, "work", "acme", None, "transient_network", "boom", f"Bearer {canaries.random(24)}")
    )
    body = json.dumps({"refresh_token": canaries.word(), "access_token": canaries.random()})
    bus.emit(DeadLetterFailed(str(ID), "acme", "xero", f"answered {body}"))
    bus.emit(DeadLetterFailed(str(ID), "acme", "xero", json.dumps({"body": body})))
    bus.emit(ServiceFailed("vault", Secret(canaries.word())))  # type: ignore[arg-type]


def _in_records(canaries: Canaries) -> None:
    logger = logging.getLogger("some.library")
    logger.info("POST /token grant_type=refresh_token&refresh_token=%s&client_id=a", canaries.word())
    logger.info(
        "headers %s", {"Authorization": f"Basic {canaries.random(40)}", "Cookie": f"sid={canaries.word()}1"}
    )
    logger.info("got %r", {"token": {"id_token": canaries.of("eyJhbGci.eyJpc3Mi.")}})
    logger.info("%d", canaries.random())  # a broken call: the logging module would print its arguments
    logger.info(canaries.of("shpat_"), extra={"password": canaries.word()})
    logger.info("key -----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----", canaries.word())
    logger.info("secret %s", Secret(canaries.word()))
    logger.error("lost", extra={"token": canaries.random()}, stack_info=True)
    for form in coded(canaries.random(64)):
        logger.warning("unexpected %s here", form)


def _in_exceptions(canaries: Canaries) -> None:
    logger = logging.getLogger("some.library")
    local = canaries.word()  # a value of a variable, which a traceback must not show
    try:
        try:
            raise KeyError(canaries.random())
        except KeyError as error:
            raise ValueError(f"answer was {{'access_token': '{canaries.word()}'}}", len(local)) from error
    except ValueError:
        logger.exception("it failed")
    group = ExceptionGroup(
        "several", [OSError(f"refresh_token={canaries.word()}"), KeyError(canaries.random())]
    )
    logger.error("group", exc_info=group)
    logged_error = ValueError("noted")
    logged_error.add_note(f"password: '{canaries.word()}'")
    logger.error("note", exc_info=logged_error)
    sys.excepthook(ValueError, ValueError(canaries.random()), None)


async def _never_retrieved(canaries: Canaries) -> None:
    async def fails() -> None:
        raise ValueError(canaries.random())

    task = asyncio.create_task(fails())
    await asyncio.wait([task])
    report = asyncio.get_running_loop().call_exception_handler
    report({"message": "Task exception was never retrieved", "exception": task.exception(), "task": task})


def logged(format: str, file: Path) -> tuple[Canaries, str]:
    """What everything said reads like in the log."""
    canaries = Canaries(random.Random(20260101))
    fd = os.open(file, os.O_WRONLY | os.O_CREAT)
    logs = configure("debug", format, fd=fd)
    try:
        say_everything(canaries)
        asyncio.run(_never_retrieved(canaries))
    finally:
        logs.close()
        os.close(fd)
    return canaries, file.read_text("utf-8")


@pytest.mark.parametrize("format", ["json", "console"])
def test_no_canary_comes_out(format: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    canaries, text = logged(format, tmp_path / "log")
    assert canaries.found_in(text) == []
    assert canaries.found_in("".join(capfd.readouterr())) == []
    for word in ("store_unreachable", "acme", str(ID), "it failed", "grant_type=refresh_token"):
        assert word in text


def test_without_the_filter_they_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ablation: it is the filter that holds them back, and not the places they were put into."""
    monkeypatch.setattr("fairlead.assembly.logs.redact", lambda text, **options: text)
    canaries, text = logged("json", tmp_path / "log")
    # extra=, Secret, values of variables; texts of errors are masked before they get here
    assert len(canaries.found_in(text)) >= len(canaries.all) // 2
