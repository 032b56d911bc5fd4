"""Canaries: unique secrets that are put in everywhere, and a search that knows them in every disguise (S13).

canaries = Canaries()
secret = canaries.random("refresh_token")       # use it as one
assert canaries.found_in(output) == []
"""

from __future__ import annotations

import base64
import json
import random
import secrets
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus

ALPHABET = string.ascii_letters + string.digits + "-_"
SHORTEST_HALF = 10
"""Halves that are shorter would be found by accident."""


@dataclass
class Canaries:
    """The secrets of a run, by the place they were put into. *chance* None: other ones each time."""

    chance: random.Random = field(default_factory=lambda: random.Random(secrets.randbits(64)))
    by_place: dict[str, str] = field(default_factory=dict)

    def random(self, label: str = "", length: int = 43) -> str:
        """Return a secret like those of ``token_urlsafe``, known by its shape."""
        return self.keep(label, "".join(self.chance.choices(ALPHABET, k=length)))

    def word(self, label: str = "") -> str:
        """Return a secret like those of people, known only by the name beside it."""
        letters = "".join(self.chance.choices(string.ascii_lowercase, k=20))
        return self.keep(label, f"pass{letters}")

    def of(self, prefix: str, label: str = "") -> str:
        """Return a secret like those of providers, known by its prefix."""
        return self.keep(label, prefix + "".join(self.chance.choices(string.ascii_lowercase, k=20)))

    def shapeless(self, label: str = "") -> str:
        """Return digits, letters, words or a short text in turn, known only to the process that holds it."""
        draw = self.chance.choices
        words = ["".join(draw(string.ascii_lowercase, k=6)) for _ in range(4)]
        kinds = (
            "".join(draw(string.digits, k=22)),
            "".join(words),
            "-".join(words),
            "".join(draw(ALPHABET, k=12)),
        )
        return self.keep(label, kinds[len(self.by_place) % len(kinds)])

    def keep(self, label: str, secret: str) -> str:
        """Register *secret*, which other code created, as a canary."""
        label = label or f"canary {len(self.by_place)}"
        if secret not in self.by_place.values():
            self.by_place[label if label not in self.by_place else f"{label} {len(self.by_place)}"] = secret
        return secret

    @property
    def all(self) -> list[str]:
        """Every secret."""
        return list(self.by_place.values())

    def found_in(self, text: str | bytes) -> list[str]:
        """Return the secrets that the text holds in any form."""
        return sorted({self.by_place[label] for label, _ in self.traces_in(text)})

    def traces_in(self, text: str | bytes) -> list[tuple[str, str]]:
        """Place and form of each secret in *said*; but for base64 the case of letters does not count."""
        raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        lowered, unified = raw.lower(), raw.translate(_ONE_BASE64)
        return [
            (label, form)
            for label, secret in self.by_place.items()
            for form, sought in forms(secret)
            if (sought.encode() in unified if form in _BASE64 else sought.lower().encode() in lowered)
        ]


_BASE64 = frozenset({"base64 at 0", "base64 at 1", "base64 at 2"})
_ONE_BASE64 = bytes.maketrans(b"-_", b"+/")
"""Both alphabets of base64 as one."""


def forms(secret: str) -> Iterator[tuple[str, str]]:
    """Return each form of a secret in a text, by its name."""
    raw, half = secret.encode(), len(secret) // 2
    yield "raw", secret
    if half >= SHORTEST_HALF:
        yield "first half", secret[:half]
        yield "second half", secret[half:]
    for offset in range(3):
        yield f"base64 at {offset}", _base64_at(offset, raw)
    yield "percent", quote(secret, safe="")
    yield "percent plus", quote_plus(secret)
    yield "percent all", "".join(f"%{byte:02x}" for byte in raw)
    yield "hex", raw.hex()
    yield "json", json.dumps(secret)[1:-1]
    yield "json escapes", "".join(f"\\u{ord(letter):04x}" for letter in secret)
    yield "reversed", secret[::-1]


def _base64_at(offset: int, raw: bytes) -> str:
    """Return the characters that *raw* alone decides if it starts *offset* bytes into a group of three."""
    coded = base64.b64encode(bytes(offset) + raw).translate(_ONE_BASE64).decode()
    return coded[-(-offset * 8 // 6) : (offset + len(raw)) * 8 // 6]


def planted(secret: str) -> Iterator[tuple[str, bytes]]:
    """Yield texts with *secret* in each form, which a search must find."""
    raw = secret.encode()
    for offset in range(3):
        for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
            yield f"base64 at {offset}", b"{" + alphabet(b"abc"[:offset] + raw + b"and more") + b"}"
    for form, text in forms(secret):
        if not form.startswith("base64"):
            yield form, f'<"{text}">'.encode()
    yield "raw", secret.encode().upper()
    yield "raw", secret.encode() + b"\x00\xff"
