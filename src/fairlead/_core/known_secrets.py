"""Masks the secrets that this process holds, in every encoding in which a text may repeat them.

A vendor may echo the key that it received. Masking by shape (policy/text/redact.py) misses secrets that are
short, words, only letters or only digits. So each ``Secret`` is remembered here, as a hash and never as text,
and every foreign text is searched for it first: as it is, in upper or lower case, percent-encoded, with the
escapes of C, JSON, JavaScript and HTML, in base64 (also of ``user:secret``) and in hex, and in these
encodings nested up to four deep. fairlead's own names and codes are not searched, because the key of one
tenant may be one of these words, which would then be masked for all tenants.

The time of a search depends only on the length of the text, however many secrets are known. Eight bytes of
each secret, at an offset that its hash chooses, are looked up at every offset of the text, and the rest is
compared only after a match. A text that is crafted to cause too many comparisons is masked whole.

Limits: secrets shorter than SHORTEST characters are not searched for, because they would mask common words.
Of more than MOST secrets the oldest may be forgotten, but none from the settings.
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

_MAX_ALIKE = 64  # secrets with the same gram; of more the oldest is forgotten
_MAX_COMPARED = 16  # bytes compared for each byte of the text
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
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{11,}={0,2}")  # the length that encodes SHORTEST bytes
_HEX = re.compile(rb"[0-9A-Fa-f]{16,}")
_PASSWORD = re.compile(r"://[^:/?#]*:([^/?#]+)@|[?&]password=([^&#]+)")
_HIDDEN = re.compile(rb"\xff+")  # a byte that never occurs in UTF-8

Span = tuple[int, int]
_Index = dict[int, tuple[int, ...]]
"""From a gram, which is SHORTEST bytes of a secret as an integer, to hash and length of each such secret in turn."""


class _SearchTooLongError(Exception):
    """The text causes too many comparisons."""


class KnownSecrets:
    """The secrets of one process. Adding is safe from any thread."""

    def __init__(self, most: int = MOST) -> None:
        self._half = most // 2
        self.clear()

    def clear(self) -> None:
        """Forget all secrets."""
        self._lock = threading.Lock()
        self._new: _Index = {}
        self._old: _Index = {}
        self._pinned: _Index = {}  # never forgotten; also in `_new`, before all others

    def renew_lock(self) -> None:
        """Replace the lock, which another thread may have held while this process was forked."""
        self._lock = threading.Lock()

    def pin(self, secret: str) -> None:
        """Remember *secret* for good, and the password of a URL separately unless the URL repeats it."""
        self.add(secret, pinned=True)
        for userinfo, query in _PASSWORD.findall(secret):
            if secret.count(password := userinfo or query) == 1:
                self.add(unquote(password), pinned=True)

    def add(self, secret: str, *, pinned: bool = False) -> None:
        """Remember the hash of *secret* unless it is too short.

        Args:
            pinned: Whether it stays known however many are added later. Default: the oldest are forgotten.
        """
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
            others = self._new.get(gram, ())[len(first) :][-2 * _MAX_ALIKE :]  # two numbers a secret
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
        except _SearchTooLongError:
            return MASK
        for start, end in spans:
            hidden[start:end] = b"\xff" * (end - start)
        return _HIDDEN.sub(MASK.encode(), hidden).decode("utf-8", "surrogatepass") if spans else text

    def _all_spans(self, raw: bytes) -> Iterator[Span]:
        """Yield where *raw* has a secret, as it is or encoded; base64 and hex are read after the last escapes."""
        view: bytes = raw
        offsets: Sequence[int] = range(len(raw) + 1)
        for depth in range(_DEPTH + 1):
            spans = self._spans(view)
            unescaped = _unescaped(view, offsets) if depth < _DEPTH else None
            if unescaped is None:
                spans += self._encoded(view)
            yield from ((offsets[start], offsets[end]) for start, end in spans)
            if unescaped is None:
                return
            view, offsets = unescaped

    def _encoded(self, view: bytes) -> Iterator[Span]:
        """Yield the runs of base64 or hex in *view* that encode a secret at any offset."""
        runs = b"".join(_BASE64.findall(view))  # hex digits are also base64 characters
        if runs and self._holds(runs):  # all runs at once first, because mostly none has a secret
            yield from (run.span() for run in _BASE64.finditer(view) if self._holds(run[0]))

    def _holds(self, run: bytes) -> bool:
        """Return whether *run*, decoded from base64 or hex, has a secret."""
        decoded = _of_base64(run) + _of_hex(run)
        inner = _unescaped(decoded, range(len(decoded) + 1))  # Basic's `user:secret` may be percent-encoded
        return bool(self._spans(decoded) or (inner is not None and self._spans(inner[0])))

    def _spans(self, view: bytes) -> list[Span]:
        """Return where *view* has a secret unencoded.

        The gram at each offset is looked up; only where a secret has the same one, its whole length is hashed.

        Raises:
            _SearchTooLongError: More than _MAX_COMPARED bytes would be hashed for each byte of *view*.
        """
        folded, budget = view.translate(_FOLD), (len(view) + 4096) * _MAX_COMPARED
        indexes = [index for index in (self._new, self._old) if index]
        spans: list[Span] = []
        for shift in range(min(SHORTEST, len(folded))):
            length_of_grams = (len(folded) - shift) // SHORTEST * SHORTEST
            grams = memoryview(folded)[shift : shift + length_of_grams].cast("Q")
            for index in indexes:
                if index.keys().isdisjoint(grams):
                    continue
                for number, gram in enumerate(grams):
                    secrets = index.get(gram, ())
                    for digest, length in zip(secrets[::2], secrets[1::2], strict=True):
                        start = shift + number * SHORTEST - digest % (length - SHORTEST + 1)
                        fits = 0 <= start <= len(folded) - length
                        budget -= length if fits else 1
                        if budget < 0:
                            raise _SearchTooLongError
                        if fits and hash(folded[start : start + length]) == digest:
                            spans.append((start, start + length))
        return spans


def _unescaped(view: bytes, offsets: Sequence[int]) -> tuple[bytes, Sequence[int]] | None:
    """Decode the escapes of *view* once; return None if it has none.

    Args:
        view: The bytes.
        offsets: The offset in the text of each byte of *view*, and of its end.

    Returns:
        The decoded bytes, and their offsets in the text.
    """
    if not (b"%" in view or b"\\" in view or b"&" in view):
        return None
    out, origins, done = bytearray(), array("I"), 0
    for escape in _ESCAPE.finditer(view):
        start, character = escape.start(), _character(escape)
        out += view[done:start] + character
        origins.extend(offsets[done:start])
        origins.extend([offsets[start]] * len(character))
        done = escape.end()
    if not done:
        return None
    origins.extend(offsets[done:])
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
    """Decode the base64 in *text* at each of the four offsets at which a group may begin."""
    digits = text.translate(_STANDARD, b"=") + b"AAA"
    groups = (digits[shift : shift + (len(digits) - shift) // 4 * 4] for shift in range(4))
    return b"".join(map(binascii.a2b_base64, groups))


def _of_hex(text: bytes) -> bytes:
    digits = b"".join(_HEX.findall(text)) + b"0"
    return b"".join(binascii.unhexlify(digits[at : at + (len(digits) - at) // 2 * 2]) for at in range(2))


KNOWN_SECRETS = KnownSecrets()
os.register_at_fork(after_in_child=KNOWN_SECRETS.renew_lock)
