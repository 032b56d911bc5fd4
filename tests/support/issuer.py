"""A bare HTTP client for the test issuer: it shows each byte, follows nothing and repeats nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from fairlead.testing import Issuer, ProviderConfig


@dataclass(frozen=True)
class FetchedResponse:
    """The response until the connection closed; *whole* is True if it was complete."""

    raw: bytes

    @property
    def head(self) -> str:
        return self.raw.partition(b"\r\n\r\n")[0].decode("latin-1")

    @property
    def body(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[2]

    @property
    def status(self) -> int:
        return int(self.head.split(" ", 2)[1])

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.split("\r\n")[1:]
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    @property
    def json(self) -> dict[str, object]:
        data = json.loads(self.body)
        assert isinstance(data, dict)
        return data

    @property
    def whole(self) -> bool:
        length = self.headers.get("content-length") if b"\r\n\r\n" in self.raw else None
        return length is not None and len(self.body) == int(length)


async def begin(
    url: str, form: Mapping[str, str] | bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send one request (POST with a form or body, else GET) and leave the connection open. *headers*
    come on top; a Content-Length in them may lie."""
    parts = urlsplit(url)
    body = b"" if form is None else form if isinstance(form, bytes) else urlencode(form).encode()
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    lines = [
        f"{'GET' if form is None else 'POST'} {path} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Connection: close",
    ]
    if form is not None:
        length = {"Content-Length": str(len(body)), **(headers or {})}
        headers = {"Content-Type": "application/x-www-form-urlencoded", **length}
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    await writer.drain()
    return reader, writer


async def fetch(
    url: str, form: Mapping[str, str] | bytes | None = None, headers: Mapping[str, str] | None = None
) -> FetchedResponse:
    """Send one request and return the response until the connection closed."""
    reader, writer = await begin(url, form, headers)
    try:
        async with asyncio.timeout(20):
            return FetchedResponse(await reader.read())
    finally:
        writer.close()
        await writer.wait_closed()


def refresh_form(refresh_token: str, **more: str) -> dict[str, str]:
    """Return the form of a refresh."""
    return {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": "app", **more}


def provider(policy: str, **more: object) -> ProviderConfig:
    """Return a provider with this policy; ``grace`` lasts a minute."""
    grace = {"grace_s": 60.0} if policy == "grace" else {}
    return ProviderConfig.model_validate({"policy": policy, **grace, **more})


async def refresh(issuer: Issuer, provider: str, token: str, **more: str) -> FetchedResponse:
    return await fetch(f"{issuer.url}/{provider}/token", refresh_form(token, **more))


async def resource(issuer: Issuer, provider: str, access_token: str) -> FetchedResponse:
    return await fetch(f"{issuer.url}/{provider}/resource", None, {"Authorization": f"Bearer {access_token}"})


async def recorded(issuer: Issuer, event: str) -> None:
    """Return once the ledger has a line of this event; the client that caused it is gone."""
    async with asyncio.timeout(5):
        while not any(issuer.ledger().of(event)):
            await asyncio.sleep(0)
