"""Masks the very secrets that this process holds, in whatever spelling a text repeats them.

A vendor may echo the key that it was sent. Masking by shape (fairlead.policy.redact) misses what is only
letters, only digits, words or short. So each ``Secret`` is remembered here, as a hash and never as text, and
every text of somebody else is searched for it first: as it is, in upper or lower case, percent-encoded, with
the escapes of JSON, JavaScript and HTML, in base64 (also of ``user:secret``) and in hex, and in these within
each other to a depth of four.

A text is searched in time that grows with its length alone, however many secrets are known: four bytes of
each, where few others have the same, are looked up at every fourth place of the text, and only where they
stand the rest is compared. Where a text is made so that this compares too often, it is masked whole.

Limits: secrets below SHORTEST characters are not searched for, since they would take words out of every
text; of more than MOST the oldest may be forgotten.
"""

from __future__ import annotations

import binascii
import os
import re
import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator

MASK = "***"
SHORTEST = 8
MOST = 16_384

_GRAM = 4
_MOST_ALIKE = 32
_MOST_COMPARED = 16  # bytes compared for each byte of the text
_DEPTH = 4
_FOLD = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ+", b"abcdefghijklmnopqrstuvwxyz ")
_STANDARD = bytes.maketrans(b"-_", b"+/")
_ESCAPE = re.compile(
    rb"%([0-9A-Fa-f]{2})|\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\u\{([0-9A-Fa-f]{1,6})\}"
    rb"|&#[xX]([0-9A-Fa-f]{1,6});|&#([0-9]{1,7});|&(amp|lt|gt|quot|apos);|\\([\"'\\/nrt])"
)
_NAMED = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}
_NAMED |= {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{10,}={0,2}")
_NOT_BASE64 = bytes(code for code in range(256) if not _BASE64.fullmatch(bytes((code,)) * 10))
_HEX = re.compile(rb"[0-9A-Fa-f]{16,}")

Span = tuple[int, int]
_Entry = tuple[int, int, int]  # where the four bytes stand in the secret, its length, its hash


class _TooMuch(Exception):
    """The text is made to be compared too often."""


class _Generation:
    """Secrets seen in one stretch of time."""

    def __init__(self) -> None:
        self.hashes: set[int] = set()
        self.at: dict[int, tuple[_Entry, ...]] = {}


class KnownSecrets:
    """The secrets of one process. Adding is safe from any thread."""

    def __init__(self, most: int = MOST) -> None:
        self._half = most // 2
        self.clear()

    def clear(self) -> None:
        """Forget all of them."""
        self._lock = threading.Lock()
        self._new, self._old = _Generation(), _Generation()

    def renew_lock(self) -> None:
        """Replace the lock, which another thread may have held while this process was forked."""
        self._lock = threading.Lock()

    def add(self, secret: str) -> None:
        """Remember *secret* unless it is too short."""
        raw = secret.encode("utf-8", "surrogatepass").translate(_FOLD)
        if len(raw) < SHORTEST or hash(raw) in self._new.hashes:
            return
        with self._lock:
            if len(self._new.hashes) >= self._half:
                self._old, self._new = self._new, _Generation()
            new = self._new
            new.hashes.add(hash(raw))
            last = len(raw) - 2 * _GRAM + 1
            begins = min((last // 2, last, 0), key=lambda at: len(new.at.get(_gram(raw, at), ())))
            for offset in range(begins, begins + _GRAM):
                alike = new.at.get(_gram(raw, offset), ())[1 - _MOST_ALIKE :]
                new.at[_gram(raw, offset)] = (*alike, (offset, len(raw), hash(raw)))

    def masked(self, text: str) -> str:
        """Return *text* with ``***`` in place of each known secret in it."""
        if len(text) < SHORTEST or not (self._new.at or self._old.at):
            return text
        raw = text.encode("utf-8", "surrogatepass")
        try:
            spans = self._all_spans(raw)
        except _TooMuch:
            return MASK
        return _without(raw, spans).decode("utf-8", "surrogatepass") if spans else text

    def _all_spans(self, raw: bytes) -> list[Span]:
        spans = self._spans(raw)
        view = raw
        back: Callable[[Span], Span] = _unchanged
        for _ in range(_DEPTH):
            read = _unescaped(view)
            if read is None:
                break
            view, inner = read
            back = _after(inner, back)
            spans += map(back, self._spans(view))
        spans += map(back, self._encoded(view))
        return spans

    def _encoded(self, view: bytes) -> Iterator[Span]:
        """Where *view* has a run of base64 or hex with a secret in it, wherever in the run it begins."""
        for form, decoded in ((_BASE64, _of_base64), (_HEX, _of_hex)):
            if self._holds(decoded(view)):  # all at once first: mostly there is none
                yield from (run.span() for run in form.finditer(view) if self._holds(decoded(run[0])))

    def _holds(self, decoded: bytes) -> bool:
        inner = _unescaped(decoded)  # `user:secret` of Basic may be percent-encoded inside
        return bool(self._spans(decoded) or (inner is not None and self._spans(inner[0])))

    def _spans(self, view: bytes) -> list[Span]:
        folded = view.translate(_FOLD)
        grams = memoryview(folded)[: len(folded) // _GRAM * _GRAM].cast("I")
        found: list[Span] = []
        for generation in (self._new, self._old):
            if not generation.at.keys().isdisjoint(grams):
                found += _compared(folded, grams, generation.at)
        return found


def _gram(raw: bytes, at: int) -> int:
    return int.from_bytes(raw[at : at + _GRAM], sys.byteorder)


def _compared(folded: bytes, grams: memoryview[int], at: dict[int, tuple[_Entry, ...]]) -> Iterator[Span]:
    """Compare the whole secret wherever four bytes of it stand."""
    end, left = 0, (len(folded) + 4096) * _MOST_COMPARED
    for place, gram in enumerate(grams):
        for offset, length, digest in at.get(gram, ()):
            start = place * _GRAM - offset
            if start < end or start + length > len(folded):
                continue
            left -= length
            if left < 0:
                raise _TooMuch
            if hash(folded[start : start + length]) == digest:
                end = start + length
                yield start, end
                break


def _unescaped(view: bytes) -> tuple[bytes, Callable[[Span], Span]] | None:
    """*view* with its escapes read once, and the way back to places in it; None if it has none."""
    if not (b"%" in view or b"\\" in view or b"&" in view):
        return None
    out, ends, sources = bytearray(), [0], [0]  # of each literal stretch: where it begins, there and here
    for escape in _ESCAPE.finditer(view):
        out += view[sources[-1] : escape.start()]
        ends.append(len(out))
        sources.append(escape.start())
        out += _character(escape)
        ends.append(len(out))
        sources.append(escape.end())
    if len(ends) == 1:
        return None
    out += view[sources[-1] :]

    def back(span: Span) -> Span:
        first = bisect_right(ends, span[0]) - 1
        last = bisect_right(ends, span[1] - 1) - 1
        start = sources[first] + (0 if first % 2 else span[0] - ends[first])
        stop = sources[last + 1] if last % 2 else sources[last] + span[1] - ends[last]
        return start, stop

    return bytes(out), back


def _character(escape: re.Match[bytes]) -> bytes:
    percent, hexed, utf16, braced, html, decimal, named, plain = escape.groups()
    if percent or hexed:
        return bytes((int(percent or hexed, 16),))
    if named or plain:
        return _NAMED.get(named or plain, named or plain)
    code = int(decimal) if decimal else int(utf16 or braced or html, 16)
    return chr(code).encode("utf-8", "surrogatepass") if code < 0x110000 else b"?"


def _of_base64(text: bytes) -> bytes:
    """What the base64 in *text* says, read from each of the four places where a group may begin."""
    digits = text.translate(_STANDARD, _NOT_BASE64) + b"AAA"
    groups = (digits[shift : shift + (len(digits) - shift) // 4 * 4] for shift in range(4))
    return b"".join(map(binascii.a2b_base64, groups))


def _of_hex(text: bytes) -> bytes:
    digits = b"".join(_HEX.findall(text)) + b"0"
    return b"".join(binascii.unhexlify(digits[at : at + (len(digits) - at) // 2 * 2]) for at in range(2))


def _unchanged(span: Span) -> Span:
    return span


def _after(inner: Callable[[Span], Span], outer: Callable[[Span], Span]) -> Callable[[Span], Span]:
    return lambda span: outer(inner(span))


def _without(raw: bytes, spans: list[Span]) -> bytes:
    out, done = bytearray(), 0
    for start, end in sorted(spans):
        if end <= done:
            continue
        if start >= done:
            out += raw[done:start] + MASK.encode()
        done = end
    return bytes(out + raw[done:])


KNOWN = KnownSecrets()
os.register_at_fork(after_in_child=KNOWN.renew_lock)
