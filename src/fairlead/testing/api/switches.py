"""Faults of a vendor API that can be switched at run time, beside the limits that it enforces."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fairlead.testing._kit.model import Model


class Switches(Model):
    """The faults of an API; by default none.

    Attributes:
        capacity: The share of every limit, and of the workers, that is available; 0.1 makes a storm.
        slow_s: Seconds that each call takes longer.
        failing: The share of calls that fail, drawn from the seed; 0.5 is an API that flaps, 1 a dead one.
        how: A failure is a 500, 502, 503 or 504, a connection that is cut without a byte, or one that hangs
            until the client leaves or the API stops.
        after_effect: The call takes effect before it fails.
        retry_after: The Retry-After of refusals and failures, byte for byte; "" leaves it out, None (default)
            keeps the vendor's own.
        unauthorised: Access tokens that get a 401.
    """

    capacity: float = Field(1.0, gt=0, le=1)
    slow_s: float = Field(0.0, ge=0, le=3600)
    failing: float = Field(0.0, ge=0, le=1)
    how: Literal[500, 502, 503, 504, "cut", "hang"] = 503
    after_effect: bool = False
    retry_after: str | None = None
    unauthorised: frozenset[str] = frozenset()
