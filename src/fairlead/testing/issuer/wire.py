"""Answers as bytes. The issuer writes its answers itself, so that a test can cut one at any byte."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

JSON = "application/json"
HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class WireResponse:
    """One complete HTTP answer."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


def encode(answer: WireResponse, *, keep_alive: bool) -> tuple[bytes, bytes]:
    """The head (with its blank line) and the body of *answer* as they go on the wire."""
    lines = [f"HTTP/1.1 {answer.status} {_phrase(answer.status)}"]
    if answer.status != HTTPStatus.NO_CONTENT:
        lines.append(f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}")
    lines.append("Cache-Control: no-store")
    lines.extend(f"{name}: {value}" for name, value in answer.headers)
    if not keep_alive:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode(), answer.body


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
