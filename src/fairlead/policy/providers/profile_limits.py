"""What a vendor lets one caller do: the limits table of a profile (G2, G4, R22).

First guesses, for the time until answers tell more. A limit is told of under its name in the vendor's
dialect (policy/limits/feedback), so that an answer finds its bucket.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fairlead.policy.limits.feedback.dialect import DialectName
from fairlead.policy.limits.limit import MAX_BUCKETS, MAX_SLOTS, MAX_UNITS, BucketLimit, per_window
from fairlead.policy.providers.profile_parts import Flag, Key, Seconds, Table

_API_VERSION = r"[0-9]{4}-[0-9]{2}|unstable"
"""Sorted as text these stand in the order of their release, and what is unstable comes last."""

ApiVersion = Annotated[str, Field(strict=True, pattern=rf"\A(?:{_API_VERSION})\z")]
Units = Annotated[float, Field(strict=True, ge=0.001, le=MAX_UNITS, allow_inf_nan=False)]


class CallLimit(Table):
    """One limit of a vendor: a bucket (capacity and per_s), or units in a window (limit and window_s)."""

    capacity: Units | None = Field(default=None, description="Units at once. Default: see window_s.")
    per_s: Units | None = Field(default=None, description="Units that are refilled each second.")
    limit: Units | None = Field(default=None, description="Units in any window.")
    window_s: Seconds | None = Field(
        default=None,
        description="Length of the window. A tenth of its limit is let through at once, at least 1, and the "
        "rest evenly, so that no window holds more: 5 in 1 s is 1 at once and 4 a second. Default: a bucket.",
    )
    apis: tuple[Key, ...] = Field(default=(), description="APIs with calls that it counts. Default all.")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        as_bucket = (self.capacity is None, self.per_s is None)
        as_window = (self.limit is None, self.window_s is None)
        if (as_bucket, as_window) not in (((False, False), (True, True)), ((True, True), (False, False))):
            raise ValueError("give capacity and per_s, or limit and window_s")
        if self.limit is not None and self.limit <= 1:
            raise ValueError("limit is above 1: one unit at once must leave something over")
        return self

    def bucket(self, key: str, name: str) -> BucketLimit:
        """The bucket that keeps to this limit."""
        if self.limit is not None and self.window_s is not None:
            window = per_window(key, self.limit, self.window_s)
            return BucketLimit(key, window.capacity, window.per_s, name=name)
        assert self.capacity is not None
        assert self.per_s is not None
        return BucketLimit(key, self.capacity, self.per_s, name=name)


class BulkVersion(Table):
    """How many bulk operations run at once in the versions of an API from one on."""

    since: ApiVersion | None = Field(default=None, description="The first such version. Default the oldest.")
    capacity: Annotated[int, Field(strict=True, ge=1, le=1000)] = Field(description="Operations at once.")
    apart: Flag = Field(default=False, description="Each kind is counted for itself. Default false.")


class Bulk(Table):
    """Operations that the vendor runs for minutes to hours, counted per app and account (G5)."""

    kinds: tuple[Key, ...] = Field(min_length=1, max_length=8, description="The kinds of operations.")
    api_version: ApiVersion = Field(description="The version of an operation that names none.")
    versions: tuple[BulkVersion, ...] = Field(
        min_length=1, max_length=8, description="How many run at once, by API version, oldest first."
    )
    lease_s: Annotated[float, Field(strict=True, ge=30, le=86_400)] = Field(
        default=600.0,
        description="How long a slot stays in use if it is not renewed; longer than the time between two "
        "polls of a running operation. Let running operations end before you change it: while processes use "
        "different values, a loss, an outage or a clock change of Redis may free a slot early. Default 600.",
    )
    again_s: Annotated[float, Field(strict=True, ge=1, le=3600)] = Field(
        default=30.0,
        description="Time until a job runs again if all slots are in use or its operation still runs. "
        "Default 30.",
    )
    way: Literal["shopify"] | None = Field(
        default=None,
        description="The protocol that starts and polls them. Default none: you do that with fl.bulk.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        begins = [version.since or "" for version in self.versions]
        if begins != sorted(set(begins)):
            raise ValueError("versions are in order, each once, only the first without since")
        if self.at(self.api_version) is None:
            raise ValueError("api_version is older than all versions")
        return self

    def at(self, api_version: str) -> BulkVersion | None:
        """The rule for *api_version*; None where it is none, or older than all."""
        if not re.fullmatch(_API_VERSION, api_version):
            return None
        begun = [version for version in self.versions if (version.since or "") <= api_version]
        return begun[-1] if begun else None


class Limits(Table):
    """What API calls must keep to. The token endpoint's own limit is the table `rate`."""

    domain: Literal["tenant", "account", "app"] = Field(
        default="tenant",
        description="What the vendor counts together: the calls of each of your customers, of each account (all "
        "connections to it share its slots), or of your whole app. Default tenant.",
    )
    dialect: DialectName = Field(
        default="standard", description="How its responses report what is left. Default standard."
    )
    api: Key = Field(default="rest", description="The API of a call that names none. Default rest.")
    calls: dict[Key, CallLimit] = Field(
        default_factory=lambda: {"requests": CallLimit(limit=100, window_s=60.0)},
        max_length=MAX_BUCKETS,
        description="Limits by the name that the dialect has for them. Default 100 requests in 60 s.",
    )
    slots: int | None = Field(
        default=None,
        strict=True,
        ge=1,
        le=MAX_SLOTS,
        description="Calls in flight at once. Default unlimited.",
    )
    bulk: Bulk | None = Field(default=None, description="Its bulk operations. Default it has none.")

    @property
    def apis(self) -> frozenset[str]:
        """Every API that some limit names, and the default one."""
        return frozenset({self.api, *(api for limit in self.calls.values() for api in limit.apis)})

    def of(self, api: str) -> dict[str, CallLimit]:
        """The limits that a call of *api* meets."""
        return {name: limit for name, limit in self.calls.items() if not limit.apis or api in limit.apis}
