"""A process that stood still past its deadline: what came meanwhile is read, and nothing is sent (E44)."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from fairlead.adapters.http import AiohttpTokenTransport, token_transport
from fairlead.adapters.http.send_time import late_s
from fairlead.engine.ports import HttpResponse, NoResponse
from tests.contract.raw_server import BODY, OK, RawConnection, RawServer, tls_contexts
from tests.contract.token_calls import PRIVATE, call_of, let_it_go
from tests.support.standstill import ran_s

pytestmark = pytest.mark.slow

DEADLINE_S, STANDSTILL_S, THINKS_S = 0.2, 0.5, 0.3


@pytest.mark.parametrize("reuse", [True, False])
async def test_an_answer_that_came_while_it_stood_still_is_read(reuse: bool) -> None:
    async def answer_then_stand_still(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(OK)
        time.sleep(STANDSTILL_S)  # nothing of this process runs, as after SIGSTOP

    async with (
        RawServer(answer_then_stand_still) as server,
        AiohttpTokenTransport(policy=PRIVATE) as transport,
    ):
        answer = await transport.send(call_of(server.url, deadline_s=DEADLINE_S, reuse=reuse), let_it_go)
        assert isinstance(answer, HttpResponse)
        assert answer.body == BODY
        assert answer.late_s == 0.0, "it had left before"


@pytest.mark.skipif(sys.platform != "linux", reason="only the kernel of Linux tells when a request left")
@pytest.mark.parametrize("reuse", [True, False])
async def test_how_late_it_left_is_told(reuse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the last look at the clock and the write no code can forbid it any more."""

    async def think(connection: RawConnection) -> None:
        for _ in range(2 if reuse else 1):
            await connection.request()
            await asyncio.sleep(THINKS_S)
            await connection.send(OK)

    async with RawServer(think) as server, AiohttpTokenTransport(policy=PRIVATE) as transport:
        call = call_of(server.url, reuse=reuse)
        if reuse:
            prompt = await transport.send(call, let_it_go)
            assert isinstance(prompt, HttpResponse)
            assert prompt.late_s == 0.0
        monkeypatch.setattr(token_transport, "faultpoint", lambda _name: time.sleep(STANDSTILL_S))
        answer = await transport.send(call, let_it_go)
        assert isinstance(answer, HttpResponse)
        assert STANDSTILL_S - 0.05 < answer.late_s < answer.late_s + answer.took_s
        assert answer.took_s > THINKS_S - 0.05


@pytest.mark.parametrize("hangs_up", [True, False])
async def test_slow_server_makes_no_send_late(tmp_path: Path, hangs_up: bool) -> None:
    """Over TLS a farewell of ours leaves with the answer: when it did is not when the request did."""

    async def think(connection: RawConnection) -> None:
        await connection.request()
        await asyncio.sleep(THINKS_S)
        await connection.send(OK)
        if hangs_up:
            connection.hang_up()

    server_tls, client_tls = tls_contexts(tmp_path)
    async with (
        RawServer(think, tls=server_tls) as server,
        AiohttpTokenTransport(policy=PRIVATE, tls=client_tls) as transport,
    ):
        answer = await transport.send(call_of(server.url, reuse=False), let_it_go)
    assert isinstance(answer, HttpResponse)
    assert answer.late_s == 0.0
    assert answer.took_s > THINKS_S - 0.05


@pytest.mark.parametrize("believes", [True, False])
async def test_a_farewell_makes_nobody_late_who_stood_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, believes: bool
) -> None:
    """It wakes, reads an answer and a farewell of long ago, and says its own before anybody looks."""

    async def answer_then_stand_still(connection: RawConnection) -> None:
        await connection.request()
        await connection.send(OK)
        connection.hang_up()
        time.sleep(STANDSTILL_S)

    if not believes:  # that the connection is closing tells it as well
        monkeypatch.setattr(token_transport, "late_s", _late_s_of_an_open_one)
    server_tls, client_tls = tls_contexts(tmp_path)
    async with (
        RawServer(answer_then_stand_still, tls=server_tls) as server,
        AiohttpTokenTransport(policy=PRIVATE, tls=client_tls) as transport,
    ):
        answer = await transport.send(call_of(server.url, deadline_s=DEADLINE_S, reuse=False), let_it_go)
    assert isinstance(answer, HttpResponse)
    assert answer.late_s == 0.0


def _late_s_of_an_open_one(
    transport: asyncio.BaseTransport, let_go_s: float, now_s: Callable[[], float]
) -> float:
    looks_open = Mock(wraps=transport)
    looks_open.is_closing = Mock(return_value=False)
    return late_s(looks_open, let_go_s, now_s)


async def test_a_request_is_not_sent_after_its_deadline() -> None:
    async def stand_still() -> None:
        time.sleep(STANDSTILL_S)

    async with RawServer() as server, AiohttpTokenTransport(policy=PRIVATE) as transport:
        answer = await transport.send(call_of(server.url, deadline_s=DEADLINE_S), stand_still)
        assert answer == NoResponse(
            sent=False, kind="timeout", why="deadline passed before the request was written"
        )
        await transport.close()
        await server.quiet()
        assert server.received == 0


async def test_process_that_stood_still_waits_for_a_bounded_time() -> None:
    async def say_nothing(connection: RawConnection) -> None:
        await connection.request()
        time.sleep(STANDSTILL_S)
        await connection.more()

    async with RawServer(say_nothing) as server, AiohttpTokenTransport(policy=PRIVATE) as transport:
        began_s = time.monotonic()
        answer = await transport.send(call_of(server.url, deadline_s=DEADLINE_S), let_it_go)
        assert answer == NoResponse(sent=True, kind="timeout", why="no complete response before the deadline")
        assert ran_s(began_s) < STANDSTILL_S + DEADLINE_S + 3.0
