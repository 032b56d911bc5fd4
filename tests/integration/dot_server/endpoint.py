"""The token endpoint seen from outside: when a POST arrived, was processed, and had its answer written.

*delay_s* lies between processed and answered. It is the time in which a client that dies has spent its
refresh token and never learns the new one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.integration.dot_server.record import Record

Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


class RecordedEndpoint:
    """WSGI middleware around the whole application."""

    def __init__(self, application: Wsgi, record: Record, delay_s: float) -> None:
        self._application = application
        self._record = record
        self._delay_s = delay_s
        self._numbers = itertools.count(1)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "POST" or not environ["PATH_INFO"].endswith("/token/"):
            return self._application(environ, start_response)
        number = next(self._numbers)
        self._record.write("arrived", request=number)
        answer = self._application(environ, start_response)
        self._record.write("processed", request=number, status=getattr(answer, "status_code", None))
        time.sleep(self._delay_s)
        return _Answer(answer, lambda: self._record.write("answered", request=number))


class _Answer:
    """Hands the answer on; the server closes it once it is written, or cannot be."""

    def __init__(self, answer: Iterable[bytes], closed: Callable[[], None]) -> None:
        self._answer = answer
        self._closed = closed

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._answer)

    def close(self) -> None:
        self._answer.close()  # type: ignore[attr-defined]
        self._closed()
