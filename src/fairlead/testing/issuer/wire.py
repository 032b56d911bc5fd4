"""Responses as bytes. The issuer writes its responses itself, so that a test can cut one at any byte."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

JSON = "application/json"
HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class WireResponse:
    """One complete HTTP response."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


def encode(response: WireResponse, *, keep_alive: bool) -> tuple[bytes, bytes]:
    """Return head (with its blank line) and body of *response* as bytes."""
    lines = [f"HTTP/1.1 {response.status} {_phrase(response.status)}"]
    if response.status != HTTPStatus.NO_CONTENT:
        lines.append(f"Content-Type: {response.content_type}\r\nContent-Length: {len(response.body)}")
    lines.append("Cache-Control: no-store")
    lines.extend(f"{name}: {value}" for name, value in response.headers)
    if not keep_alive:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode(), response.body


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
