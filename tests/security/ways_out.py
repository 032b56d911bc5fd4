"""The three ways out: calls, token endpoints, webhooks; and a loop that notes who is dialled."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.http import AddressPolicy, AiohttpTokenTransport, AiohttpTransport
from fairlead.adapters.http.webhook import AiohttpWebhookSender
from fairlead.engine.ports import NoResponse, Webhook
from fairlead.errors import FairleadError
from tests.contract.calls import request_of
from tests.contract.token_calls import call_of, let_it_go

METHODS = ("call", "token", "webhook")
EVENT = Webhook("1", "acme", None, b"{}")
Ask = Callable[[str], Awaitable[object]]
"""Sends one request to an address; gives its status, or why there is none."""


@asynccontextmanager
async def way_out(method: str, policy: AddressPolicy = AddressPolicy()) -> AsyncIterator[Ask]:  # noqa: B008
    """One of WAYS, as the product opens it."""
    async with AsyncExitStack() as stack:
        if method == "call":
            calls = await stack.enter_async_context(AiohttpTransport(policy=policy))
            yield lambda url: _result_of(calls.send(request_of(url)))
        elif method == "token":
            tokens = await stack.enter_async_context(AiohttpTokenTransport(policy=policy))
            yield lambda url: _result_of(tokens.send(call_of(url, authorization="Basic app"), let_it_go))
        else:
            yield lambda url: _result_of(_posted(url, policy))


async def _posted(url: str, policy: AddressPolicy) -> None:
    sender = AiohttpWebhookSender(url, Secret("s" * 32), policy=policy)
    try:
        await sender.send(EVENT)
    finally:
        await sender.close()


async def _result_of(sending: Awaitable[Any]) -> object:
    try:
        answer = await sending
    except FairleadError as error:
        return error
    return answer if isinstance(answer, NoResponse) or answer is None else answer.status


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Every address that the loop was asked to connect to; none is reached."""
    resolved: list[tuple[Any, ...]] = []

    async def connect(_loop: object, _sock: object, address: tuple[Any, ...]) -> None:
        resolved.append(address)
        raise ConnectionRefusedError(111, "refused by the test")

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connect)
    return resolved


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: Sequence[str]) -> list[str]:
    """Have each look-up give the next of *answers*, the last for ever; the names that were asked for."""
    resolved: list[str] = []

    def getaddrinfo(host: str, port: int, *_args: object) -> list[tuple[Any, ...]]:
        resolved.append(host)
        addresses = answers[min(len(resolved), len(answers)) - 1]
        kinds = [(socket.AF_INET6 if ":" in address else socket.AF_INET, address) for address in addresses]
        return [(family, socket.SOCK_STREAM, 6, "", (address, port)) for family, address in kinds]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return resolved
