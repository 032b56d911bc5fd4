"""What the suites of the calls' transport share: a request, private addresses allowed, answers."""

from __future__ import annotations

from typing import Any

from fairlead._core.secret import Secret
from fairlead.adapters.http import AddressPolicy
from fairlead.engine.ports import HttpRequest

PRIVATE = AddressPolicy(allow_private=True)
SECRET = "access-token-canary"
MIB = 1 << 20


def request_of(url: str, method: str = "GET", body: bytes | None = None, **fields: Any) -> HttpRequest:
    """A call with a token. *fields* replace what else a request has; 5 s and 1 MiB by default."""
    headers = {"Authorization": Secret(f"Bearer {SECRET}")}
    send_fields = {"headers": headers, "deadline_s": 5.0, "max_body_bytes": MIB, **fields}
    return HttpRequest(method=method, url=url, body=body, **send_fields)


def answer_of(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
