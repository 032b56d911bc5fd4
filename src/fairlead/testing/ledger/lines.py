"""Read an issuer's ledger as values.

`read_ledger` returns its lines, `posts_of` joins the lines of each presentation of a token into one `Post`.
``fairlead.testing.issuer.entries`` describes the lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.errors import InvalidInputError

_REFRESHES = (None, "client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One line of the ledger.

    Attributes:
        run: Its run; an issuer that appends to an old file begins a new one.
        t: Seconds of the issuer's monotonic clock.
        seq: Its number within the run.
        fields: Its other fields.
    """

    run: int
    t: float
    seq: int
    event: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The lines of a ledger file in order."""

    entries: tuple[LedgerEntry, ...]

    @property
    def complete(self) -> bool:
        """Whether the issuer ended by itself; otherwise the last lines may be missing."""
        return bool(self.entries) and self.entries[-1].event == "stopped"

    def of(self, event: str) -> Iterator[LedgerEntry]:
        """Return the lines of one event."""
        return (entry for entry in self.entries if entry.event == event)


@dataclass(slots=True)
class Post:
    """One presentation of a token at the token endpoint; None means that the ledger has no such event.

    Attributes:
        seq_arrived, seq_answered: Numbers of the lines, which order events of the same instant.
        left_s: Remaining life of the access token of the presented generation.
        kind: The result of processing.
        delivered: The response was sent completely.
        tokens: The new tokens were in it.
    """

    run: int
    request: int
    provider: str
    connection: str | None
    generation: int | None
    t_arrived: float
    seq_arrived: int
    left_s: float | None = None
    client_id: str | None = None
    incomplete: bool = False
    in_url: bool = False
    t_processed: float | None = None
    kind: str | None = None
    reason: str | None = None
    successor: int | None = None
    t_answered: float | None = None
    seq_answered: int | None = None
    status: int | None = None
    delivered: bool = False
    tokens: bool = False

    @property
    def answered_failure(self) -> bool:
        """Whether it was not processed and the client got a complete response: the token is unchanged."""
        return self.kind is None and self.delivered

    @property
    def unrotated(self) -> bool:
        """Whether the client got a new access token and no new refresh token."""
        return self.kind in ("minted", "unchanged") and self.tokens

    @property
    def rotated(self) -> bool:
        """Whether it created a successor, or returned it again."""
        return self.successor is not None


def read_ledger(path: Path) -> Ledger:
    """Return the ledger in *path*; skip half a line, which a killed issuer can leave.

    Raises:
        InvalidInputError: Another line is unreadable, or a number is missing.
    """
    with path.open(encoding="utf-8", newline="\n") as file:
        return parse_ledger(file)


def parse_ledger(lines: Iterable[str]) -> Ledger:
    """Return the ledger in *lines*, which have their newlines; otherwise as `read_ledger`."""
    entries: list[LedgerEntry] = []
    run, seq, torn = 0, 0, False
    for number, line in enumerate(lines, 1):
        try:
            data = json.loads(line) if line.endswith("\n") else None
        except ValueError:
            data = None
        if not isinstance(data, dict):
            torn = torn or bool(line.strip())
            continue
        if data.get("ev") == "started":
            run, seq, torn = run + 1, 0, False
        if torn or data.get("seq") != seq + 1:
            raise InvalidInputError(
                f"the ledger is damaged at line {number}", hint="a line is missing or cut before it"
            )
        seq += 1
        t, event = float(data.pop("t")), str(data.pop("ev"))
        entries.append(LedgerEntry(run, t, int(data.pop("seq")), event, data))
    return Ledger(tuple(entries))


def posts_of(ledger: Ledger) -> list[Post]:
    """Return every presentation of a refresh token or assertion, in the order of arrival."""
    posts: dict[tuple[int, int], Post] = {}
    for entry in ledger.entries:
        fields = entry.fields
        key = (entry.run, fields.get("req", 0))
        if entry.event == "arrived":
            if _is_refresh(fields):
                posts[key] = _arrived(entry)
            continue
        post = posts.get(key)
        if post is None:
            continue
        if entry.event == "processed":
            post.t_processed, post.kind = entry.t, fields["kind"]
            post.reason, post.successor = fields.get("reason"), fields.get("successor")
        elif entry.event == "answered":
            post.t_answered, post.seq_answered = entry.t, entry.seq
            post.status = fields.get("status")
            post.delivered, post.tokens = fields["delivered"], fields.get("tokens", False)
    return list(posts.values())


def _is_refresh(fields: dict[str, Any]) -> bool:
    """Return whether it is no revocation and no code; a body that never came counts as a refresh."""
    return fields.get("at") is None and (fields.get("incomplete") or fields.get("grant") in _REFRESHES)


def _arrived(entry: LedgerEntry) -> Post:
    fields = entry.fields
    return Post(
        run=entry.run,
        request=fields["req"],
        provider=fields["provider"],
        connection=fields.get("connection"),
        generation=fields.get("generation"),
        t_arrived=entry.t,
        seq_arrived=entry.seq,
        left_s=fields.get("left_s"),
        client_id=fields.get("client_id"),
        incomplete=fields.get("incomplete", False),
        in_url=fields.get("query", False),
    )
