"""Decoding an answer's body within bounds (V6, S10).

Requests ask for an uncompressed answer. What comes compressed all the same is decoded up to a bound; what
does not decode is handed on as it came: it may hold the only copy of a new token, and will be kept sealed.
"""

from __future__ import annotations

import zlib

MAX_MEMBERS = 8  # of a gzip file; each one costs time whatever its size

_WINDOWS = {"gzip": (31,), "x-gzip": (31,), "deflate": (15, -15)}  # deflate: with zlib's frame, or bare


class BodyTooLarge(Exception):
    """The body is larger than the bound."""


def decoded(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """*body* without its content encoding, or as it is where that fails; BodyTooLarge beyond the bound."""
    for window in _WINDOWS.get(encoding.strip().lower(), ()):
        plain = _inflated(body, window, max_bytes)
        if plain is not None:
            return plain
    return body


def _inflated(body: bytes, window: int, max_bytes: int) -> bytes | None:
    """All members of *body*; None unless it is whole and well formed."""
    plain = b""
    for _ in range(MAX_MEMBERS):
        inflater = zlib.decompressobj(window)
        try:
            plain += inflater.decompress(body, max_bytes + 1 - len(plain))
        except zlib.error:
            return None
        if len(plain) > max_bytes:
            raise BodyTooLarge
        if not inflater.eof:
            return None
        body = inflater.unused_data
        if not body:
            return plain
    return None
