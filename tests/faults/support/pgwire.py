"""Just enough of PostgreSQL's protocol to know which statement goes over a wire."""

from __future__ import annotations

from collections.abc import Iterator

_STARTUP = 196_608  # protocol 3.0
_HEAD = 5


class Requests:
    """The client's side of one connection: the text of what each message asks for."""

    def __init__(self) -> None:
        self._rest = b""
        self._started = False
        self._texts: dict[bytes, str] = {}

    def split(self, data: bytes) -> Iterator[tuple[bytes, str]]:
        """Whole messages in *data* and what came before, each with the SQL it runs ("" for none)."""
        self._rest += data
        while (size := self._size()) is not None and len(self._rest) >= size:
            message, self._rest = self._rest[:size], self._rest[size:]
            if not self._started:
                self._started = int.from_bytes(message[4:8], "big") == _STARTUP
                yield message, ""
            else:
                yield message, self._text(message)

    def _size(self) -> int | None:
        """Of the next message, its type byte included."""
        if not self._started:
            return int.from_bytes(self._rest[:4], "big") if len(self._rest) >= 4 else None
        return 1 + int.from_bytes(self._rest[1:5], "big") if len(self._rest) >= _HEAD else None

    def _text(self, message: bytes) -> str:
        kind, fields = message[:1], message[_HEAD:].split(b"\0", 2)
        if kind == b"Q":
            return fields[0].decode()
        if kind == b"P":
            self._texts[fields[0]] = fields[1].decode()
        return self._texts.get(fields[1], "") if kind == b"B" else ""


class Answers:
    """The server's side of one connection: when it is done with a request."""

    def __init__(self) -> None:
        self._rest = b""

    def done(self, data: bytes) -> bool:
        """Whether *data* ends an answer (ReadyForQuery); to be fed from the start of an answer on."""
        self._rest += data
        done = False
        while len(self._rest) >= _HEAD:
            size = 1 + int.from_bytes(self._rest[1:5], "big")
            if len(self._rest) < size:
                break
            done = done or self._rest[:1] == b"Z"
            self._rest = self._rest[size:]
        return done
