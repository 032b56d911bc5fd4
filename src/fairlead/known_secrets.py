"""Masks the very secrets that this process holds, in whatever spelling a text repeats them.

A vendor may echo the key that it was sent. Masking by shape (fairlead.policy.redact) misses what is only
letters, only digits, words or short. So each ``Secret`` is remembered here, as a hash and never as text, and
every text of somebody else is searched for it first: as it is, in upper or lower case, percent-encoded, with
the escapes of C, JSON, JavaScript and HTML, in base64 (also of ``user:secret``) and in hex, and in these
within each other to a depth of four. Names and codes of ours are no such texts: the key of one tenant may be
one of these words, and would hide it from everybody.

A text is searched in time that grows with its length alone, however many secrets are known: eight bytes of
each, at a place that its hash chooses, are looked up at every place of the text, and only where they stand
the rest is compared. Where a text is made so that this compares too often, it is masked whole.

Limits: secrets below SHORTEST characters are not searched for, since they would take words out of every
text; of more than MOST the oldest may be forgotten, but none of the settings.
"""

from __future__ import annotations

import binascii
import os
import re
import sys
import threading
from array import array
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

MASK = "***"
SHORTEST = 8
MOST = 16_384

_MOST_ALIKE = 64  # secrets with the same eight bytes; beyond these the oldest is forgotten
_MOST_COMPARED = 16  # bytes compared for each byte of the text
_DEPTH = 4
_FOLD = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ+", b"abcdefghijklmnopqrstuvwxyz ")
_STANDARD = bytes.maketrans(b"-_", b"+/")
_ESCAPE = re.compile(
    rb"%([0-9A-Fa-f]{2})|\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\u\{([0-9A-Fa-f]{1,6})\}"
    rb"|&#[xX]([0-9A-Fa-f]{1,6});|&#([0-9]{1,7});|&(amp|lt|gt|quot|apos);|\\([\"'\\/nrt])"
    rb"|\\([0-3][0-7]{2})|\\U([0-9A-Fa-f]{8})"
)
_NAMED = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}
_NAMED |= {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{11,}={0,2}")  # as long as what says SHORTEST bytes
_HEX = re.compile(rb"[0-9A-Fa-f]{16,}")
_PASSWORD = re.compile(r"://[^:/?#]*:([^/?#]+)@|[?&]password=([^&#]+)")
_HIDDEN = re.compile(rb"\xff+")  # a byte that UTF-8 never has

Span = tuple[int, int]
_Index = dict[int, tuple[int, ...]]  # by eight bytes: hash and length of each secret, one after the other


class _TooMuch(Exception):
    """The text is made to be compared too often."""


class KnownSecrets:
    """The secrets of one process. Adding is safe from any thread."""

    def __init__(self, most: int = MOST) -> None:
        self._half = most // 2
        self.clear()

    def clear(self) -> None:
        """Forget all of them."""
        self._lock = threading.Lock()
        self._new: _Index = {}
        self._old: _Index = {}
        self._pinned: _Index = {}  # each of them stands in the new ones, too, before all others

    def renew_lock(self) -> None:
        """Replace the lock, which another thread may have held while this process was forked."""
        self._lock = threading.Lock()

    def pin(self, secret: str) -> None:
        """Remember *secret* for good, and of a URL the password by itself unless the URL repeats it."""
        self.add(secret, pinned=True)
        for userinfo, query in _PASSWORD.findall(secret):
            if secret.count(password := userinfo or query) == 1:
                self.add(unquote(password), pinned=True)

    def add(self, secret: str, *, pinned: bool = False) -> None:
        """Remember *secret* unless it is too short."""
        raw = secret.encode("utf-8", "surrogatepass").translate(_FOLD)
        if len(raw) < SHORTEST:
            return
        digest, length = hash(raw), len(raw)
        at = digest % (length - SHORTEST + 1)
        gram = int.from_bytes(raw[at : at + SHORTEST], sys.byteorder)
        if digest in (self._pinned if pinned else self._new).get(gram, ()):
            return
        with self._lock:
            if len(self._new) >= self._half:
                self._old, self._new = self._new, dict(self._pinned)
            first = self._pinned.get(gram, ())
            others = self._new.get(gram, ())[len(first) :][-2 * _MOST_ALIKE :]
            if pinned and len(self._pinned) < self._half // 2:
                first = self._pinned[gram] = (*first, digest, length)
            else:
                others += (digest, length)
            self._new[gram] = first + others

    def masked(self, text: str) -> str:
        """Return *text* with ``***`` in place of each known secret in it."""
        if len(text) < SHORTEST or not self._new:
            return text
        hidden = bytearray(text.encode("utf-8", "surrogatepass"))
        try:
            spans = list(self._all_spans(bytes(hidden)))
        except _TooMuch:
            return MASK
        for start, end in spans:
            hidden[start:end] = b"\xff" * (end - start)
        return _HIDDEN.sub(MASK.encode(), hidden).decode("utf-8", "surrogatepass") if spans else text

    def _all_spans(self, raw: bytes) -> Iterator[Span]:
        view: bytes = raw
        places: Sequence[int] = range(len(raw) + 1)
        for depth in range(_DEPTH + 1):
            spans = self._spans(view)
            read = _unescaped(view, places) if depth < _DEPTH else None
            if read is None:
                spans += self._encoded(view)
            yield from ((places[start], places[end]) for start, end in spans)
            if read is None:
                return
            view, places = read

    def _encoded(self, view: bytes) -> Iterator[Span]:
        """Where *view* has a run of base64 or hex with a secret in it, wherever in the run it begins."""
        runs = b"".join(_BASE64.findall(view))  # hex has no other characters
        if runs and self._holds(runs):  # all at once first: mostly there is none
            yield from (run.span() for run in _BASE64.finditer(view) if self._holds(run[0]))

    def _holds(self, run: bytes) -> bool:
        decoded = _of_base64(run) + _of_hex(run)
        inner = _unescaped(decoded, range(len(decoded) + 1))  # Basic's `user:secret` may be percent-encoded
        return bool(self._spans(decoded) or (inner is not None and self._spans(inner[0])))

    def _spans(self, view: bytes) -> list[Span]:
        folded, left = view.translate(_FOLD), (len(view) + 4096) * _MOST_COMPARED
        indexes = [index for index in (self._new, self._old) if index]
        found: list[Span] = []
        for shift in range(min(SHORTEST, len(folded))):
            whole = (len(folded) - shift) // SHORTEST * SHORTEST
            grams = memoryview(folded)[shift : shift + whole].cast("Q")
            for index in indexes:
                if index.keys().isdisjoint(grams):
                    continue
                for number, gram in enumerate(grams):
                    known = index.get(gram, ())
                    for digest, length in zip(known[::2], known[1::2], strict=True):
                        start = shift + number * SHORTEST - digest % (length - SHORTEST + 1)
                        fits = 0 <= start <= len(folded) - length
                        left -= length if fits else 1
                        if left < 0:
                            raise _TooMuch
                        if fits and hash(folded[start : start + length]) == digest:
                            found.append((start, start + length))
        return found


def _unescaped(view: bytes, places: Sequence[int]) -> tuple[bytes, Sequence[int]] | None:
    """*view* with its escapes read once, and the place of each byte of that in the text; None if it has none.

    *places*: those of *view*, and where it ends.
    """
    if not (b"%" in view or b"\\" in view or b"&" in view):
        return None
    out, origins, done = bytearray(), array("I"), 0
    for escape in _ESCAPE.finditer(view):
        start, character = escape.start(), _character(escape)
        out += view[done:start] + character
        origins.extend(places[done:start])
        origins.extend([places[start]] * len(character))
        done = escape.end()
    if not done:
        return None
    origins.extend(places[done:])
    return bytes(out + view[done:]), origins


def _character(escape: re.Match[bytes]) -> bytes:
    percent, hexed, utf16, braced, html, decimal, named, plain, octal, utf32 = escape.groups()
    if percent or hexed or octal:
        return bytes((int(octal, 8) if octal else int(percent or hexed, 16),))
    if named or plain:
        return _NAMED.get(named or plain, named or plain)
    code = int(decimal) if decimal else int(utf16 or braced or html or utf32, 16)
    return chr(code).encode("utf-8", "surrogatepass") if code < 0x110000 else b"?"


def _of_base64(text: bytes) -> bytes:
    """What the base64 in *text* says, read from each of the four places where a group may begin."""
    digits = text.translate(_STANDARD, b"=") + b"AAA"
    groups = (digits[shift : shift + (len(digits) - shift) // 4 * 4] for shift in range(4))
    return b"".join(map(binascii.a2b_base64, groups))


def _of_hex(text: bytes) -> bytes:
    digits = b"".join(_HEX.findall(text)) + b"0"
    return b"".join(binascii.unhexlify(digits[at : at + (len(digits) - at) // 2 * 2]) for at in range(2))


KNOWN = KnownSecrets()
os.register_at_fork(after_in_child=KNOWN.renew_lock)
