"""The meaning of `invalid_grant` for a signed assertion if the issuer's clock and the database's differ.

An assertion is valid for minutes. It is signed with the database's time and checked with the issuer's. If the
clocks differ too much, the refusal means that one of them is wrong, and nothing about the grant:

| the clocks differ by | the refresh                                                                      |
| -------------------- | -------------------------------------------------------------------------------- |
| up to 60 s           | is refused for good: the customer must consent again                             |
| up to 1 h            | is retried once with an assertion signed by the issuer's Date if it came over    |
|                      | TLS, and fails for now if that does not help                                     |
| more                 | fails until the clock is set (permanent_config)                                  |
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fairlead.policy.failures.category import Category
from fairlead.policy.failures.http_date import parse_http_date
from fairlead.policy.providers.profile import Profile
from fairlead.policy.tokens.outcome import Rejected, TokenOutcome, TransientFailure

MAX_IGNORED_SKEW_S = 60.0
"""Up to this difference the refusal counts as one of the grant."""
MAX_RESIGN_SKEW_S = 3600.0
"""The largest difference at which an assertion is signed again with the issuer's time."""
LONGEST_RESIGNED_S = 300
"""The longest life, in seconds, of an assertion that is signed by the issuer's clock."""

_CODE = "invalid_grant"
_DATE_RESOLUTION_S = 1.0  # a Date header has whole seconds


@dataclass(frozen=True, slots=True)
class ClockSkew:
    """The times of the issuer's clock and the database's at one moment."""

    issuer_at: datetime
    database_at: datetime

    @property
    def issuer_s(self) -> int:
        """The Unix time by the issuer's clock."""
        return int(self.issuer_at.timestamp())

    @property
    def difference_s(self) -> float:
        """The difference between the clocks in seconds, never negative."""
        return abs((self.issuer_at - self.database_at).total_seconds())

    @property
    def outcome(self) -> TransientFailure | Rejected:
        """The outcome of the refresh if it is not retried with the issuer's time."""
        if self.difference_s > MAX_RESIGN_SKEW_S:
            return Rejected(Category.PERMANENT_CONFIG, _CODE)
        return TransientFailure(Category.TRANSIENT_NETWORK, _CODE)

    def may_resign(self, url: str) -> bool:
        """Return whether the assertion may be signed again with the issuer's time.

        Over plain HTTP anybody on the way may have written the Date header.
        """
        return self.difference_s <= MAX_RESIGN_SKEW_S and url.startswith("https://")

    def __str__(self) -> str:
        times = [f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" for at in (self.issuer_at, self.database_at)]
        side = "ahead of" if self.issuer_at > self.database_at else "behind"
        return (
            f"the token endpoint answered {_CODE} to a signed assertion; its clock says {times[0]}, the"
            f" database's {times[1]}: it is {self.difference_s:.0f} s {side} ours, and either clock may be wrong"
        )


def clock_skew(
    profile: Profile, outcome: TokenOutcome, date: str | None, sent_at: datetime, took_s: float
) -> ClockSkew | None:
    """Return the clock skew that explains why *outcome* is a refusal, or None if *outcome* is to be taken as it is.

    Args:
        date: The response's Date header as sent.
        sent_at: The time of the send by the database's clock.
        took_s: Seconds from the send to the response. The issuer may have read its clock at any moment of
            them.
    """
    if profile.strategy != "assertion" or not isinstance(outcome, Rejected):
        return None
    issuer_s = parse_http_date(date) if date is not None else None
    if issuer_s is None or (outcome.category, outcome.code) != (Category.PERMANENT_AUTH, _CODE):
        return None
    issuer_at = datetime.fromtimestamp(0, UTC) + timedelta(seconds=issuer_s)
    earliest_at = sent_at - timedelta(seconds=_DATE_RESOLUTION_S)
    latest_at = sent_at + timedelta(seconds=took_s)
    # The moment of the request at which the clocks differ least; they agree if issuer_at is within the request.
    database_at = min(max(issuer_at, earliest_at), latest_at)
    skew = ClockSkew(issuer_at, database_at)
    return skew if skew.difference_s > MAX_IGNORED_SKEW_S else None
