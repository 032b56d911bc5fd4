"""A record of the requests an API received and their results, to compare a client's own account with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fairlead.policy.limits.event_log_check import verify_bucket_log
from fairlead.policy.limits.limit import MICRO

MAX_ARRIVALS = 1_000_000
"""Requests that are stored one by one; later ones are only counted."""


@dataclass(slots=True)
class Arrival:
    """One request. Its instants are of the API's monotonic clock, comparable within one host."""

    number: int
    account: str
    method: str
    target: str
    """Path and query, as sent."""
    authorization: str = field(repr=False)
    """The header with the caller's credential, as sent; empty if there is none."""
    begun_mono: float
    admitted_mono: float | None = None
    """When it passed the limits; None: it did not."""
    ended_mono: float | None = None
    """When the response was ready; None: it is still in flight."""
    status: int | None = None
    """Status of the response; None: there is none (yet)."""
    refused: str | None = None
    """The limit that refused it."""


class RequestLog:
    """All requests of one API, oldest first, with instants of the clock *monotonic*."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.arrivals: list[Arrival] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._in_flight: Counter[str] = Counter()  # by account; "" is all accounts
        self._peak: Counter[str] = Counter()
        self._total = 0

    # ---- written by the API ------------------------------------------------------------------------

    def begin(self, account: str, method: str, target: str, authorization: str) -> Arrival:
        """Record a request that has arrived."""
        self._total += 1
        arrival = Arrival(self._total, account, method, target, authorization, self._monotonic())
        if len(self.arrivals) < MAX_ARRIVALS:
            self.arrivals.append(arrival)
        self._counts[account, "arrived"] += 1
        return arrival

    def admit(self, arrival: Arrival) -> None:
        """Record that *arrival* passed the limits; it is in flight from now on."""
        arrival.admitted_mono = self._monotonic()
        account = arrival.account
        self._counts[account, "admitted"] += 1
        for name in (account, ""):
            self._in_flight[name] += 1
            self._peak[name] = max(self._peak[name], self._in_flight[name])

    def end(self, arrival: Arrival, status: int | None, refused: str | None) -> None:
        """Record that *arrival* was answered, or dropped (*status* None)."""
        arrival.ended_mono, arrival.status, arrival.refused = self._monotonic(), status, refused
        if refused is not None:
            self._counts[arrival.account, f"refused {refused}"] += 1
        if arrival.admitted_mono is not None:
            for name in (arrival.account, ""):
                self._in_flight[name] -= 1

    # ---- read by tests and benchmarks --------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether every request was stored, not only counted."""
        return len(self.arrivals) == self._total

    def of(self, account: str | None = None) -> Iterator[Arrival]:
        """Return the requests of *account*, or of all."""
        return (arrival for arrival in self.arrivals if account in (None, arrival.account))

    def arrived(self, account: str | None = None) -> int:
        """Return the number of requests."""
        return self._sum(account, "arrived")

    def admitted(self, account: str | None = None) -> int:
        """Return the number of requests that passed the limits."""
        return self._sum(account, "admitted")

    def refused(self, account: str | None = None, limit: str = "") -> int:
        """Return the number of requests that *limit*, or any limit, refused."""
        return self._sum(account, f"refused {limit}")

    def in_flight(self, account: str | None = None) -> int:
        """Return the number of admitted requests in flight, including those abandoned by their client."""
        return self._in_flight[account or ""]

    def most_in_flight(self, account: str | None = None) -> int:
        """Return the largest number of requests that were in flight at one time."""
        return self._peak[account or ""]

    def in_flight_at(self, at_mono: float, account: str | None = None) -> int:
        """Return the number of requests that were in flight at an instant of the API's clock."""
        return sum(
            arrival.admitted_mono is not None
            and arrival.admitted_mono <= at_mono
            and (arrival.ended_mono is None or arrival.ended_mono > at_mono)
            for arrival in self.of(account)
        )

    def over(self, capacity: float, per_s: float, account: str | None = None) -> float:
        """Return by how many requests some window exceeds *capacity* + *per_s* · window; 0.0 if none does.

        Refused requests count too, since they were sent.
        """
        spends = ((round(arrival.begun_mono * MICRO), MICRO) for arrival in self.of(account))
        return verify_bucket_log(
            spends, capacity=round(capacity * MICRO), rate=round(per_s * MICRO)
        ).max_excess

    def _sum(self, account: str | None, event: str) -> int:
        return sum(
            count
            for (name, kind), count in self._counts.items()
            if account in (None, name) and (kind == event or (event == "refused " and kind.startswith(event)))
        )
