"""The limits of a call: those of its provider's profile, overridden by its connection's settings.

    slots, rate   counted where the vendor counts: per account, so that two connections to one account share
    quota         per tenant
    breaker       per connection and host

All of them are in one domain, which the profile declares. A rate begins with the numbers that responses
stated under the same settings, else with those of the connection's settings or of the profile. Numbers from
settings have the version of the connection. A guess has the start time of this process as its version, so
that a changed profile reaches buckets that Redis knows, but never replaces settings. Numbers learnt under a
guess have the oldest version, so that they replace nothing that a bucket has learnt since. A number of slots
that a response stated applies unless the connection sets its own. Spec: G3, R22, R33, R52.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

from fairlead.engine.limits.observations import Consensus, Doubts
from fairlead.engine.ports import Connection
from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.policy.limits.breaker import Destination
from fairlead.policy.limits.estimate import UNKNOWN
from fairlead.policy.limits.key import digest
from fairlead.policy.limits.limit import (
    EXPLICIT,
    GUESS,
    OBSERVED,
    BreakerRule,
    BucketLimit,
    Domain,
    Plan,
    PoolLimit,
    QuotaLimit,
    version_of,
)
from fairlead.policy.providers.call_settings import INLINE_WAIT_S
from fairlead.policy.providers.connection_calls import call_settings_of
from fairlead.policy.providers.connection_limits import ConnectionLimits, limits_of
from fairlead.policy.providers.profile import Profile
from fairlead.policy.providers.profile_limits import BulkConfig, LimitsConfig
from fairlead.policy.text.names import shown

_MAX_ENTRIES = 50_000


@dataclass(frozen=True, slots=True)
class CallPlan:
    """The limits of one kind of call, and how its responses are read.

    Attributes:
        observe: Whether the limits are only observed: no call is refused.
        mark: A number that identifies the plan in all processes.
        is_exclusive: Whether only the tenant's connections to this account use its buckets.
        unknown_costs: The cost of a call without an estimate: one unit of each bucket, or its capacity if that
            is less. Empty means one of each, as in AdmitRequest.
        inline_wait_s: How long a call waits that does not say.
        doubts: The numbers of earlier responses that were ignored.
    """

    plan: Plan
    dialect: str
    observe: bool
    mark: int
    is_exclusive: bool
    unknown_costs: tuple[float, ...]
    inline_wait_s: float = INLINE_WAIT_S
    doubts: Doubts = field(default_factory=Doubts, compare=False)


@dataclass(frozen=True, slots=True)
class BulkPlan:
    """The slots of one kind of bulk operation, and what the profile says about such operations."""

    plan: Plan
    pool: PoolLimit
    bulk: BulkConfig
    dialect: str
    observe: bool


class Plans:
    """Plans by connection and API; each is made once per version of its connection and what was learnt."""

    def __init__(self, profile: Callable[[str, str | None], Profile], since_us: int = 1) -> None:
        """Make an empty cache.

        Args:
            profile: Returns the profile of a provider and variant.
            since_us: When the profiles were read, in microseconds since the epoch. Default 1.
        """
        self._profile = profile
        self._since_us = since_us
        self._plans: dict[tuple[UUID, str, str], tuple[Connection, CallPlan]] = {}
        self._shared: dict[Domain, Consensus] = {}

    def of(self, connection: Connection, api: str | None = None, host: str = "") -> CallPlan:
        """Return the plan for a call of *api* (default the profile's) to *host*.

        Raises:
            InvalidInputError: The provider has no such API.
            InvalidConfigError: The settings are impossible.
        """
        profile = self._profile(connection.key.provider, connection.variant)
        limits = profile.limits
        api = api or limits.api
        key = (connection.connection_id, api, host)
        cached = self._plans.get(key)
        if cached is not None and (cached[0] is connection or _have_same_limits(cached[0], connection)):
            return cached[1]
        if api not in limits.apis and api not in profile.apis:
            raise InvalidInputError(
                f"{shown(api)} is no API of this provider",
                tenant=connection.key.tenant,
                provider=connection.key.provider,
                hint=f"it has: {', '.join(sorted({*limits.apis, *profile.apis}))}",
            )
        if len(self._plans) >= _MAX_ENTRIES or len(self._shared) >= _MAX_ENTRIES:
            self._plans.clear()
            self._shared.clear()
        tenant = connection.key.tenant
        settings = call_settings_of(profile, connection.settings, tenant=tenant)
        call_plan = _call_plan(connection, limits, api, host, self._since_us)
        # An app has other tenants even if this process has seen none; an account mostly has one.
        only = None if limits.domain == "app" else tenant
        doubts = Doubts(
            tenant=tenant, consensus=self._shared.setdefault(call_plan.plan.domain, Consensus(only))
        )
        if doubts.consensus.only != tenant:
            doubts.consensus.only = None
        call_plan = replace(call_plan, inline_wait_s=settings.inline_wait_s, doubts=doubts)
        self._plans[key] = (connection, call_plan)
        return call_plan

    def bulk(self, connection: Connection, kind: str, api_version: str | None = None) -> BulkPlan:
        """Return the plan of a bulk operation of *kind* in *api_version* (default the profile's).

        Raises:
            InvalidInputError: The provider has no such operations.
            InvalidConfigError: The settings are impossible.
        """
        limits = self._profile(connection.key.provider, connection.variant).limits
        tenant, provider = connection.key.tenant, connection.key.provider
        bulk = limits.bulk
        if bulk is None or kind not in bulk.kinds:
            kinds = ", ".join(bulk.kinds) if bulk else "none"
            raise InvalidInputError(
                f"{shown(kind)} is no kind of bulk operation of this provider",
                tenant=tenant,
                provider=provider,
                hint=f"it has: {kinds}",
            )
        rule = bulk.for_version(api_version or bulk.api_version)
        if rule is None:
            raise InvalidInputError(
                f"{shown(api_version)} is no API version of this provider",
                tenant=tenant,
                provider=provider,
                hint=f"write it like {bulk.api_version}",
            )
        settings = limits_of(connection.settings, tenant=tenant, provider=provider)
        account = connection.account_id or connection.key.account
        key_parts = ["bulk", provider, connection.client_id, account, *([kind] if rule.per_kind else [])]
        pool = PoolLimit(
            "|".join(key_parts),
            settings.bulk_operations or rule.capacity,
            lease_s=bulk.lease_s,
            version=_version(connection, settings.bulk_operations is not None, self._since_us),
            fencing=True,
        )
        plan = Plan(_domain(connection, limits, account), pool=pool, degraded=settings.degraded_mode)
        return BulkPlan(plan, pool, bulk, limits.dialect, settings.observe)


def _have_same_limits(cached: Connection, current: Connection) -> bool:
    """Return whether the plan that was made for *cached* is still valid for *current*."""
    if cached.version != current.version:
        return False
    return cached.learned_limits == current.learned_limits and cached.learned_slots == current.learned_slots


def check_settings(connection: Connection, limits: LimitsConfig) -> None:
    """Raise InvalidConfigError if no call could be made with the settings of *connection*.

    Call it before they are stored, because afterwards every call would fail.
    """
    tenant, provider = connection.key.tenant, connection.key.provider
    settings = limits_of(connection.settings, tenant=tenant, provider=provider)
    for name, limit in settings.calls.items():
        unknown = sorted(set(limit.apis) - limits.apis)
        if unknown:
            raise InvalidConfigError(
                f"the limit {name!r} is for the API {unknown[0]!r}, which this provider does not have",
                tenant=tenant,
                provider=provider,
                hint=f"it has: {', '.join(sorted(limits.apis))}",
            )
    for api in limits.apis:
        try:
            _call_plan(connection, limits, api, "")
        except InvalidConfigError as error:  # of a limit, which knows no connection
            raise InvalidConfigError(
                error.message, tenant=tenant, provider=provider, hint=error.hint
            ) from None


def _version(connection: Connection, explicit: bool, since_us: int) -> int:
    """Return the version of a limit's numbers: *explicit* ones from settings replace those of a profile."""
    level, moment = (EXPLICIT, connection.version) if explicit else (GUESS, since_us)
    return version_of(level, connection.connection_id.int, moment)


def _call_plan(
    connection: Connection, limits: LimitsConfig, api: str, host: str, since_us: int = 1
) -> CallPlan:
    tenant, provider = connection.key.tenant, connection.key.provider
    settings = limits_of(connection.settings, tenant=tenant, provider=provider)
    account = connection.account_id or connection.key.account
    counted = provider if limits.domain == "app" else f"{provider}|{account}"
    plan = Plan(
        _domain(connection, limits, account),
        breaker=BreakerRule(
            Destination(provider, connection.key.account, tenant, host).name,
            failures=settings.breaker_failures,
            open_s=settings.breaker_open_s,
        ),
        quota=None
        if settings.tenant_slots is None
        else QuotaLimit(f"tenant|{tenant}", settings.tenant_slots),
        pool=_pool(settings, limits, counted, connection, since_us),
        buckets=_buckets(settings, limits, api, counted, connection, since_us),
        degraded=settings.degraded_mode,
    )
    least = tuple(min(UNKNOWN, bucket.capacity) for bucket in plan.buckets)
    costs = () if all(cost == UNKNOWN for cost in least) else least
    return CallPlan(plan, limits.dialect, settings.observe, _mark(plan), limits.domain == "tenant", costs)


def _mark(plan: Plan) -> int:
    """Return a number that is the same for this plan in every process."""
    named = (*plan.domain.parts, *(bucket.key for bucket in plan.buckets))
    return int.from_bytes(digest(named).encode()[:8], "big")


def _domain(connection: Connection, limits: LimitsConfig, account: str) -> Domain:
    """Return the domain in which the provider counts: an account, an app or a tenant."""
    provider = connection.key.provider
    match limits.domain:
        case "account" if (
            connection.account_id is None
        ):  # without an id, equal names do not mean the same account
            return Domain((provider, "unknown account", connection.key.tenant, account))
        case "account":
            return Domain((provider, "account", account))
        case "app":
            return Domain((provider, "app", connection.client_id))
        case _:
            return Domain(("tenant", connection.key.tenant))


def _pool(
    settings: ConnectionLimits, limits: LimitsConfig, key: str, connection: Connection, since_us: int
) -> PoolLimit | None:
    capacity = settings.concurrency_limit or limits.slots or settings.tenant_slots
    observed = connection.learned_slots
    version = _version(connection, settings.concurrency_limit is not None, since_us)
    if capacity is not None and settings.concurrency_limit is None and observed is not None:
        capacity, version = (
            observed.capacity,
            version_of(OBSERVED, connection.connection_id.int, observed.version),
        )
    if capacity is None:
        return None
    return PoolLimit(
        key,
        capacity,
        max_wait_s=settings.max_wait_s,
        classes=settings.priority_classes,
        minimum=settings.minimum_slots,
        version=version,
    )


def _buckets(
    settings: ConnectionLimits,
    limits: LimitsConfig,
    api: str,
    key: str,
    connection: Connection,
    since_us: int,
) -> tuple[BucketLimit, ...]:
    merged = limits.model_copy(update={"calls": {**limits.calls, **settings.calls}})
    return tuple(
        _as_observed(limit.bucket(f"{key}|{name}", name), connection, name in settings.calls, since_us)
        for name, limit in sorted(merged.for_api(api).items())
    )


def _as_observed(bucket: BucketLimit, connection: Connection, explicit: bool, since_us: int) -> BucketLimit:
    observed = connection.learned_limits.get(bucket.name)
    if observed is None:
        return replace(bucket, version=_version(connection, explicit, since_us))
    version = _version(connection, explicit, 0)
    return replace(
        bucket, capacity=observed[0], per_s=observed[1], version=version, configured=bucket.capacity
    )
