"""Who may end a consent: the browser that brings its state, once."""

from __future__ import annotations

import asyncio

import pytest

from fairlead._core.secret import Secret
from fairlead.cli.connections.callback import Callback, callback_fields
from fairlead.errors import InvalidConfigError, InvalidInputError, RefusedError
from fairlead.policy.tokens.consent import is_loopback
from tests.support.issuer import begin, fetch

STATE = Secret("the-state")


async def test_callback_accepts_one_answer_with_its_state() -> None:
    async with Callback("http://127.0.0.1:0/callback") as callback:
        waiting = asyncio.create_task(callback.wait(STATE, 20.0))
        await asyncio.sleep(0)
        good = f"{callback.redirect_uri}?state=the-state&code=c"
        for address, status in (
            (f"{callback.redirect_uri}?state=other&code=c", 400),
            (f"{callback.redirect_uri}?code=c", 400),
            (f"{good}&state=the-state", 400),
            (good.replace("/callback", "/"), 404),
        ):
            assert (await fetch(address)).status == status
        assert (await fetch(callback.redirect_uri, {"state": "the-state"})).status == 404
        assert not waiting.done()
        reply = await fetch(good)
        assert (reply.status, reply.headers["cache-control"]) == (200, "no-store")
        assert "the-state" not in reply.body.decode()
        assert "the terminal says whether it was accepted" in reply.body.decode(), "iss is judged later"
        assert await waiting == {"state": "the-state", "code": "c"}
        assert (await fetch(good.replace("code=c", "code=d"))).status == 410


async def test_half_a_request_keeps_nobody_waiting() -> None:
    async with Callback("http://127.0.0.1:0/callback") as callback:
        waiting = asyncio.create_task(callback.wait(STATE, 20.0))
        host, port = "127.0.0.1", int(callback.redirect_uri.split(":")[2].split("/")[0])
        _, idle = await asyncio.open_connection(host, port)
        idle.write(b"GET /callback?state=the-")
        reader, writer = await begin(f"{callback.redirect_uri}?{'x' * 20_000}")
        assert await reader.read() == b""
        writer.close()
        assert (await fetch(f"{callback.redirect_uri}?state=the-state&error=denied")).status == 200
        assert (await waiting)["error"] == "denied"
        idle.close()


async def test_callback_without_an_answer_or_a_free_port_is_an_error() -> None:
    async with Callback("http://127.0.0.1:0/callback") as callback:
        with pytest.raises(RefusedError, match="no consent was given"):
            await callback.wait(STATE, 0.01)
        with pytest.raises(InvalidConfigError, match="cannot be bound"):
            async with Callback(callback.redirect_uri):
                raise AssertionError("two listen on one port")


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("http://127.0.0.1:8931/callback", True),
        ("http://localhost/x", True),
        ("http://[::1]:1/x", True),
        ("https://127.0.0.1/x", False),
        ("https://app.example/callback", False),
        ("http://127.0.0.1.evil.example/x", False),
    ],
)
def test_which_addresses_lead_here(address: str, here: bool) -> None:
    assert is_loopback(address) is here


def test_a_pasted_address() -> None:
    assert callback_fields("https://app.example/cb?state=s&code=c%20d#x") == {"state": "s", "code": "c d"}
    for address in ("https://x/?a=1&a=2", f"https://x/?{'&'.join(f'a{n}=1' for n in range(40))}"):
        with pytest.raises(InvalidInputError):
            callback_fields(address)


async def test_a_target_that_is_no_address_is_refused() -> None:
    async with Callback("http://127.0.0.1:0/callback") as callback:
        port = int(callback.redirect_uri.split(":")[2].split("/")[0])
        waiting = asyncio.create_task(callback.wait(STATE, 20.0))
        await asyncio.sleep(0)
        for target in ("//[", "http://[", "/callback?a=1&a=2"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {target} HTTP/1.1\r\n\r\n".encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 400")
            writer.close()
        waiting.cancel()
