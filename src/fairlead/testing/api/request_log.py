"""What came to a rude API and what became of it: the truth that a client's own account is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fairlead.policy.limits.event_log_check import verify_bucket_log
from fairlead.policy.limits.limit import MICRO

MOST_KEPT = 1_000_000
"""Requests that are kept one by one; what comes later is counted only."""


@dataclass(slots=True)
class Arrival:
    """One request. Times in seconds of the API's clock, comparable within one host."""

    number: int
    account: str
    method: str
    target: str
    """Path and query, as sent."""
    authorization: str = field(repr=False)
    """The header that names the caller, as sent; empty where none came."""
    begun_s: float
    admitted_s: float | None = None
    """When it passed the limits; None: it did not."""
    ended_s: float | None = None
    """When the answer was made; None: it is still served."""
    status: int | None = None
    """Of the answer; None: there was none (yet)."""
    refused: str | None = None
    """The limit that it was refused for."""


class RequestLog:
    """All requests of one API, oldest first; *now_s* is the API's clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.arrivals: list[Arrival] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._in_flight: Counter[str] = Counter()
        self._most: Counter[str] = Counter()
        self._total = 0

    # ---- written by the API ------------------------------------------------------------------------

    def begin(self, account: str, method: str, target: str, authorization: str) -> Arrival:
        """One more request has come."""
        self._total += 1
        arrival = Arrival(self._total, account, method, target, authorization, self._now_s())
        if len(self.arrivals) < MOST_KEPT:
            self.arrivals.append(arrival)
        self._counts[account, "arrived"] += 1
        return arrival

    def admit(self, arrival: Arrival) -> None:
        """It passed the limits and is in flight from now on."""
        arrival.admitted_s = self._now_s()
        account = arrival.account
        self._counts[account, "admitted"] += 1
        for name in (account, ""):
            self._in_flight[name] += 1
            self._most[name] = max(self._most[name], self._in_flight[name])

    def end(self, arrival: Arrival, status: int | None, refused: str | None) -> None:
        """It was answered, or (status None) dropped."""
        arrival.ended_s, arrival.status, arrival.refused = self._now_s(), status, refused
        if refused is not None:
            self._counts[arrival.account, f"refused {refused}"] += 1
        if arrival.admitted_s is not None:
            for name in (arrival.account, ""):
                self._in_flight[name] -= 1

    # ---- read by tests and benches -----------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether every request was kept, not only counted."""
        return len(self.arrivals) == self._total

    def of(self, account: str | None = None) -> Iterator[Arrival]:
        """The requests of *account*, or of all."""
        return (one for one in self.arrivals if account in (None, one.account))

    def arrived(self, account: str | None = None) -> int:
        """Requests that came."""
        return self._sum(account, "arrived")

    def admitted(self, account: str | None = None) -> int:
        """Requests that passed the limits."""
        return self._sum(account, "admitted")

    def refused(self, account: str | None = None, limit: str = "") -> int:
        """Requests that a limit refused: the one named, or any."""
        return self._sum(account, f"refused {limit}")

    def in_flight(self, account: str | None = None) -> int:
        """Admitted requests that are served now; a client that has left changes nothing in it."""
        return self._in_flight[account or ""]

    def most_in_flight(self, account: str | None = None) -> int:
        """The most that were served at one time."""
        return self._most[account or ""]

    def in_flight_at(self, at_s: float, account: str | None = None) -> int:
        """Admitted requests that were served at a moment of the API's clock."""
        return sum(
            one.admitted_s is not None
            and one.admitted_s <= at_s
            and (one.ended_s is None or one.ended_s > at_s)
            for one in self.of(account)
        )

    def over(self, capacity: float, per_s: float, account: str | None = None) -> float:
        """By how many requests some window held more than *capacity* + *per_s* · window; 0.0: none did.

        All requests count, refused ones too: they were sent.
        """
        spends = ((round(one.begun_s * MICRO), MICRO) for one in self.of(account))
        return verify_bucket_log(
            spends, capacity=round(capacity * MICRO), rate=round(per_s * MICRO)
        ).most_over

    def _sum(self, account: str | None, what: str) -> int:
        return sum(
            count
            for (name, kind), count in self._counts.items()
            if account in (None, name) and (kind == what or (what == "refused " and kind.startswith(what)))
        )
