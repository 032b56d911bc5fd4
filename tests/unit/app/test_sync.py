"""The facade for blocking code: how it opens and ends. What it reads and stores is shown in tests/e2e."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from fairlead.app import sync
from fairlead.app.sync import SyncFairlead
from fairlead.errors import InvalidInputError, RefusedError


class Door:
    """A Fairlead whose tokens never come."""

    in_memory = False

    def __init__(self) -> None:
        self.sync = SyncFairlead(self, lambda: self)  # type: ignore[arg-type, return-value]
        self.asked, self.ended = threading.Event(), threading.Event()
        self.drained: list[float] = []
        self.imported: list[tuple[threading.Thread, bool]] = []
        self.runtime = SimpleNamespace(tokens=SimpleNamespace(coordinator=SimpleNamespace(drain=self.drain)))

    def load_modules(self) -> None:
        self.imported.append((threading.current_thread(), self.sync._lock.locked()))

    async def __aenter__(self) -> Door:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        return

    async def drain(self, within_s: float) -> None:
        await asyncio.sleep(5 * within_s)  # its answer is late
        self.drained.append(within_s)

    async def token(self, *_key: str) -> Any:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


def test_close_ends_the_calls_of_other_threads() -> None:
    door, log = Door(), list[str]()

    def other() -> None:
        try:
            door.sync.token("acme", "mercadolibre")
        except RefusedError as refused:
            log.append(refused.message)

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    assert door.asked.wait(10)
    door.sync.close()
    thread.join(10)
    assert door.ended.is_set(), "what they wait for is ended, too"
    assert log == ["fl.sync was closed while this call was under way"]


def test_close_ends_a_call_whose_code_blocks_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "END_S", 0.01)
    door, log, started, go = Door(), list[str](), threading.Event(), threading.Event()

    async def block(_door: object) -> None:
        started.set()
        go.wait(20)

    def other() -> None:
        try:
            door.sync._wait(block)
        except RefusedError as refused:
            log.append(refused.message)

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    assert started.wait(10)
    loop = door.sync._open_loop()
    with pytest.raises(TimeoutError):
        door.sync.close(0.01)
    thread.join(10)
    assert log == ["fl.sync was closed while this call was under way"]
    go.set()  # what follows ends with the process elsewhere
    loop._thread.join(10)
    while asyncio.all_tasks(loop._loop):
        loop._loop.call_soon(loop._loop.stop)
        loop._loop.run_forever()
    loop._loop.close()


def test_modules_are_imported_on_the_callers_thread_and_not_under_the_lock() -> None:
    door = Door()
    with door.sync:
        assert door.imported == [(threading.current_thread(), False)]


async def test_call_of_fl_sync_in_a_running_loop_is_refused_and_says_what_to_do() -> None:
    class Prompt(Door):
        async def token(self, *_key: str) -> str:
            return "token"

        refresh = enqueue_many = result = token

    door = Prompt()
    calls: list[Callable[[], object]] = [
        lambda: door.sync.token("acme", "mercadolibre"),
        lambda: door.sync.refresh("acme", "mercadolibre"),
        lambda: door.sync.enqueue("kind", tenant="acme"),
        lambda: door.sync.enqueue_many([]),
        lambda: door.sync.result(UUID(int=1)),
        door.sync.__enter__,
    ]
    for call in calls:
        with pytest.raises(InvalidInputError, match=r"would block the event loop.*await"):
            call()
    assert door.sync._loop is None
    door.sync.close()  # nothing is open
    assert await asyncio.to_thread(calls[0]) == "token"
    with pytest.raises(InvalidInputError, match=r"would block the event loop.*asyncio\.to_thread"):
        door.sync.close()
    await asyncio.to_thread(door.sync.close)
    assert door.sync._loop is None


def test_close_in_a_hurry_waits_for_what_was_sent() -> None:
    door = Door()
    with door.sync as sync:
        sync.close(0.01)
    assert door.drained == [0.01]


def test_a_loop_that_has_ended_takes_no_call() -> None:
    door = Door()
    loop = door.sync._open_loop()
    door.sync.close()
    with pytest.raises(RefusedError):
        loop.wait(lambda fl: fl.token("acme", "mercadolibre"))
