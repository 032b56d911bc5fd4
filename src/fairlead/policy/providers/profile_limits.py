"""The limits of a provider's API: the table ``limits`` of a profile.

These are first guesses, until responses report the actual limits. A limit has the name that the provider's
dialect (policy/limits/feedback) uses for it, so that an observation is applied to the right bucket.

Spec: G2, G4, R22.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fairlead.policy.limits.feedback.dialect import DialectName
from fairlead.policy.limits.limit import MAX_BUCKETS, MAX_SLOTS, MAX_UNITS, BucketLimit, per_window
from fairlead.policy.providers.profile_parts import ConfigTable, Flag, Key, Seconds

_API_VERSION = r"[0-9]{4}-[0-9]{2}|unstable"
"""Sorted as text, versions are in the order of their release, and `unstable` comes last."""

ApiVersion = Annotated[str, Field(strict=True, pattern=rf"\A(?:{_API_VERSION})\z")]
Units = Annotated[float, Field(strict=True, ge=0.001, le=MAX_UNITS, allow_inf_nan=False)]


class CallLimitConfig(ConfigTable):
    """One rate limit: a token bucket (capacity and per_s), or units in a window (limit and window_s)."""

    capacity: Units | None = Field(
        default=None, description="Units that the bucket holds. Default none: the limit is a window."
    )
    per_s: Units | None = Field(
        default=None, description="Units that the bucket is refilled with each second. Default none."
    )
    limit: Units | None = Field(
        default=None, description="Units in any window. Default none: the limit is a bucket."
    )
    window_s: Seconds | None = Field(
        default=None,
        description="Length of the window. A tenth of its limit, at least 1, may be spent at once and the "
        "rest "
        "evenly, so that no window contains more: 5 in 1 s is 1 at once and 4 a second. Default none.",
    )
    apis: tuple[Key, ...] = Field(default=(), description="APIs that it applies to. Default all.")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        as_bucket = (self.capacity is None, self.per_s is None)
        as_window = (self.limit is None, self.window_s is None)
        if (as_bucket, as_window) not in (((False, False), (True, True)), ((True, True), (False, False))):
            raise ValueError("give capacity and per_s, or limit and window_s")
        if self.limit is not None and self.limit <= 1:
            raise ValueError("limit must be above 1, because one unit may be spent at once")
        return self

    def bucket(self, key: str, name: str) -> BucketLimit:
        """Return the token bucket that enforces this limit.

        Args:
            key: The key of the bucket.
            name: The name of the limit, for messages and observations.
        """
        if self.limit is not None and self.window_s is not None:
            window = per_window(key, self.limit, self.window_s)
            return BucketLimit(key, window.capacity, window.per_s, name=name)
        assert self.capacity is not None
        assert self.per_s is not None
        return BucketLimit(key, self.capacity, self.per_s, name=name)


class BulkVersionConfig(ConfigTable):
    """How many bulk operations may run at once, from one API version on."""

    since: ApiVersion | None = Field(
        default=None, description="First API version that this applies to. Default the oldest."
    )
    capacity: Annotated[int, Field(strict=True, ge=1, le=1000)] = Field(
        description="Operations that may run at once."
    )
    per_kind: Flag = Field(
        default=False, description="Whether each kind has this capacity of its own. Default false."
    )


class BulkConfig(ConfigTable):
    """Operations that the provider runs for minutes to hours, counted per app and account. Spec: G5."""

    kinds: tuple[Key, ...] = Field(min_length=1, max_length=8, description="The kinds of operations.")
    api_version: ApiVersion = Field(description="API version of an operation that names none.")
    versions: tuple[BulkVersionConfig, ...] = Field(
        min_length=1, max_length=8, description="How many may run at once, by API version, oldest first."
    )
    lease_s: Annotated[float, Field(strict=True, ge=30, le=86_400)] = Field(
        default=600.0,
        description="Lease of an operation's slot, renewed at each poll, so it must be longer than the time "
        "between two polls. Let running operations end before you change it: while processes use different "
        "values, a loss, an outage or a clock change of Redis may release a slot early. Default 600.",
    )
    retry_after_s: Annotated[float, Field(strict=True, ge=1, le=3600)] = Field(
        default=30.0,
        description="When a job runs again if it got no slot or its operation is still running. Default 30.",
    )
    protocol: Literal["shopify"] | None = Field(
        default=None,
        description="How operations are started and polled. Default none: you do that with fl.bulk.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        starts = [version.since or "" for version in self.versions]
        if starts != sorted(set(starts)):
            raise ValueError("versions must be in order, each once, only the first without since")
        if self.for_version(self.api_version) is None:
            raise ValueError("api_version is older than all versions")
        return self

    def for_version(self, api_version: str) -> BulkVersionConfig | None:
        """Return the entry that applies to *api_version*; None if it is malformed or older than all entries."""
        if not re.fullmatch(_API_VERSION, api_version):
            return None
        applicable = [version for version in self.versions if (version.since or "") <= api_version]
        return applicable[-1] if applicable else None


class LimitsConfig(ConfigTable):
    """The limits of API calls. That of the token endpoint is the table `rate`."""

    domain: Literal["tenant", "account", "app"] = Field(
        default="tenant",
        description="What the provider counts together: the calls of a tenant; of an account, which several "
        "connections may share; or of your whole app. Default tenant.",
    )
    dialect: DialectName = Field(
        default="standard", description="How its responses report what is left. Default standard."
    )
    api: Key = Field(default="rest", description="API of a call that names none. Default rest.")
    calls: dict[Key, CallLimitConfig] = Field(
        default_factory=lambda: {"requests": CallLimitConfig(limit=100, window_s=60.0)},
        max_length=MAX_BUCKETS,
        description="Rate limits, by the names that the dialect uses. Default 100 requests in 60 s.",
    )
    slots: int | None = Field(
        default=None,
        strict=True,
        ge=1,
        le=MAX_SLOTS,
        description="Calls that may be in flight at once. Default unlimited.",
    )
    bulk: BulkConfig | None = Field(default=None, description="Its bulk operations. Default none.")

    @property
    def apis(self) -> frozenset[str]:
        """All APIs that a limit names, and the default API."""
        return frozenset({self.api, *(api for limit in self.calls.values() for api in limit.apis)})

    def for_api(self, api: str) -> dict[str, CallLimitConfig]:
        """Return the limits that apply to a call of *api*, by name."""
        return {name: limit for name, limit in self.calls.items() if not limit.apis or api in limit.apis}
