"""Decoding of response bodies within bounds, piece by piece. Spec: V6, S10, P11.

The encoded and the decoded body are bounded, and the number of gzip members, because each costs time. Pieces
are small, so that other tasks can run while a decompression bomb is decoded.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

MAX_MEMBERS = 1000  # of a gzip body: about 10 ms of work
PIECE_BYTES = 256 << 10  # about 1 ms of work

_GZIP, _ZLIB, _BARE = 31, 15, -15  # zlib's window bits
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}
_NOT_ACCEPTED = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz"})


class BodyTooLargeError(Exception):
    """The body is larger than the bound."""


class MalformedBodyError(Exception):
    """The body does not decode. The text says why, and nothing of the body."""


class Decoder:
    """A decoder of one body by the value of Content-Encoding. Unknown encodings are ignored; servers send
    such.

    Raises:
        BodyTooLargeError: The encoded or decoded body is larger than *max_bytes*.
        MalformedBodyError: The body does not decode.
    """

    def __init__(self, encoding: str, max_bytes: int) -> None:
        codings = [word.strip().lower() for word in encoding.split(",")] if encoding else []
        encodings = [word for word in codings if word in _WINDOWS or word in _NOT_ACCEPTED]
        if len(encodings) > 1 or (encodings and encodings[0] in _NOT_ACCEPTED):
            raise MalformedBodyError("the response has a content encoding that the request did not accept")
        self._max_bytes = max_bytes
        self._received = self._decoded = self._members = 0
        self._window = _WINDOWS[encodings[0]] if encodings else 0
        self._inflater = zlib.decompressobj(self._window) if encodings else None
        self._start = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decoded *data*, in pieces of at most PIECE_BYTES if it was encoded."""
        self._received += len(data)
        if self._received > self._max_bytes:
            raise BodyTooLargeError
        if self._inflater is None:
            yield data
            return
        if self._window == _ZLIB:
            data = self._detect_frame(data)
        try:
            yield from self._inflated(data)
        except zlib.error:
            raise MalformedBodyError("the response's body does not decode") from None

    def end(self) -> None:
        """Raise MalformedBodyError if the body has ended before its encoding."""
        if self._inflater is not None and self._received and not self._inflater.eof:
            raise MalformedBodyError("the response's body ends before its encoding does")

    def _detect_frame(self, data: bytes) -> bytes:
        """Detect by the first two bytes whether deflate has zlib's frame, as it should, or none.

        Returns:
            What can be inflated: all of *data*, with the byte before it; nothing until there are two bytes.
        """
        data = self._start + data
        if len(data) < 2:
            self._start = data
            return b""
        self._start = b""
        if data[0] & 0x0F != 8 or int.from_bytes(data[:2], "big") % 31:
            self._inflater = zlib.decompressobj(_BARE)
        self._window = _BARE  # detected
        return data

    def _inflated(self, data: bytes) -> Iterator[bytes]:
        assert self._inflater is not None
        more = bool(data)
        while more:
            if self._inflater.eof:  # bytes behind the end: of gzip, another member
                self._next_member()
            piece = self._inflater.decompress(data, PIECE_BYTES)
            self._decoded += len(piece)
            if self._decoded > self._max_bytes:
                raise BodyTooLargeError
            if piece:
                yield piece
            data = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
            more = bool(data) or (len(piece) == PIECE_BYTES and not self._inflater.eof)

    def _next_member(self) -> None:
        self._members += 1
        if self._window != _GZIP or self._members >= MAX_MEMBERS:
            raise MalformedBodyError("the response's body goes on behind its end")
        self._inflater = zlib.decompressobj(_GZIP)


def decoded(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return *body* without its content encoding; raise BodyTooLargeError beyond the bound.

    A body that does not decode is returned unchanged: it may hold the only copy of a new token.
    """
    try:
        decoder = Decoder(encoding, max_bytes)
        plain = b"".join(decoder.feed(body))
        decoder.end()
    except MalformedBodyError:
        return body
    return plain
