"""What may go wrong with a rude API at run time, beside the limits that it enforces."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fairlead.testing._kit.model import Model


class Switches(Model):
    """How rude an API is now; by default not at all.

    *capacity*: the share of every limit, and of the workers, that is left; 0.1 makes a storm. *slow_s*: how
    much longer each call takes. *failing*: the share of calls that fail, drawn from the seed; 0.5 is an API
    that flaps, 1 a dead one. *how*: a failure is a 500, 502, 503 or 504, a connection that is cut without a
    byte, or one that hangs until the client leaves or the API stops. *after*: the call was carried out before
    it failed.

    *retry_after*: what refusals and failures say in Retry-After, byte for byte; "" leaves it out, None
    (default) is the vendor's own. *unauthorised*: access tokens that get a 401.
    """

    capacity: float = Field(1.0, gt=0, le=1)
    slow_s: float = Field(0.0, ge=0, le=3600)
    failing: float = Field(0.0, ge=0, le=1)
    how: Literal[500, 502, 503, 504, "cut", "hang"] = 503
    after: bool = False
    retry_after: str | None = None
    unauthorised: frozenset[str] = frozenset()
