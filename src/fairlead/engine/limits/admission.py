"""The values of one admission, from the request of a call to its release. Spec: G1, R25, R26.

    CallRequest ─► AdmissionRequest ─► AdmittedCall, an Admission to its caller ─► released
    what the caller says   with limits and costs     with what the response says

The gate's port adds two more: AdmitRequest, one request to the gate, and Admitted, its permission.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.engine.limits.lease_renewer import HeldLease
from fairlead.engine.limits.observations import Doubts, observations_for
from fairlead.engine.ports import Admitted, Connection, ConnectionKey, Observation
from fairlead.errors import InvalidInputError
from fairlead.policy.calls.deadline import is_hurried
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.feedback.dialect import parse_limits
from fairlead.policy.limits.feedback.raw_response import LimitObservation, RawResponse
from fairlead.policy.limits.limit import MAX_LEASE_S, MAX_UNITS, Plan
from fairlead.policy.text.names import shown
from fairlead.policy.text.number import number_of

CALL_S = 60.0
"""How long a call may take if it does not say."""


@dataclass(slots=True)  # not to be changed; frozen, each field would cost a call 0.1 us
class CallRequest:
    """A request for admission of one call. None means: as its job says, else the default."""

    key: ConnectionKey
    api: str | None = None
    host: str = ""
    cost: float | None = None
    """Units of each of its limits; None: as earlier calls of its *operation* cost, at first 1."""
    priority_class: int | None = None
    wait_s: float | None = None
    call_s: float = CALL_S
    retry: bool | None = None
    """Whether the call is a retry; None: whether its job is."""
    operation: str = ""
    """Calls of one operation are expected to cost the same."""

    def __post_init__(self) -> None:
        """Raise InvalidInputError for an impossible cost or wait: a negative cost would fill the buckets."""
        bounds = (("cost", self.cost, MAX_UNITS), ("wait_s", self.wait_s, MAX_LEASE_S))
        for name, value, limit in bounds:
            if value is not None and not 0 <= number_of(value) <= limit:  # NaN fails this comparison
                text = f"{value:g}" if type(value) in (int, float) else shown(value)
                raise InvalidInputError(
                    f"{name} is {text}",
                    tenant=self.key.tenant,
                    provider=self.key.provider,
                    hint=f"give 0 to {limit:g}",
                )


class AdmissionRequest(NamedTuple):
    """A call's request for admission.

    Attributes:
        wait_s: How long the call may wait here.
        reserve_ahead_s: How far ahead to reserve units, to come back with the same *reservation_id* (default:
            as long as it may wait).
        waited_s: How long the work has waited already.
        existed_s: How long its connection has existed, if known; see AdmitRequest.
        account: The connection's account. With *host* it identifies the breaker in events.
        plan_now: Returns the newest limits of the call, which a response may have changed since *plan*.
    """

    plan: Plan
    tenant: str
    provider: str
    costs: tuple[float, ...] = ()
    job: str = ""
    priority_class: int = 1
    wait_s: float = 0.0
    reserve_ahead_s: float = 0.0
    reservation_id: int = 0
    waited_s: float = 0.0
    call_s: float = 60.0
    existed_s: float = math.inf
    account: str = "default"
    host: str = ""
    plan_now: Callable[[], Plan] | None = None


@dataclass(slots=True)
class Admission:
    """An admitted call. It collects what the response says, and the gate gets it when the call ends."""

    admitted: Admitted
    waited_s: float
    health: DestinationHealth = DestinationHealth.NEUTRAL
    cause: str = ""  # the code of the failure behind *health*, such as dns or http_500
    actual_cost: dict[int, float] = field(default_factory=dict)
    """Units that the response says were used, by the index of the bucket."""
    observed: dict[int, Observation] = field(default_factory=dict)
    estimated_cost: dict[int, float] = field(default_factory=dict)
    """Units that the response says such a call needs, by the index of the bucket: for the next of its operation."""
    observed_slots: int | None = None
    """How many calls may be in flight, if the response says so."""
    dialect: str = "standard"
    doubts: Doubts | None = None  # of the plan
    ignored: tuple[str, ...] = ()
    requested_mono: float = 0.0
    """When admission was requested, by the clock of this process. Only set if the call has a slot."""
    keeps_slot: bool = False
    """Whether the provider may still be working on the call after its end, so that its slot ends with its lease."""
    report_responding: Callable[[], None] | None = None
    """Of a probe: to be called once the headers of a good response are here and its body is on its way."""

    @property
    def fence(self) -> int:
        """Return the fencing token: each lease of the same slots has a larger one than those before."""
        return self.admitted.fence

    def record_response(self, response: RawResponse, *, now_epoch_s: float | None = None) -> None:
        """Record what a response says about the provider's limits and its health; a 5xx counts as an outage."""
        is_down = response.status >= 500
        health = DestinationHealth.UNHEALTHY if is_down else DestinationHealth.HEALTHY
        items = parse_limits(self.dialect, response, now_epoch_s=now_epoch_s)
        self.apply_observations(items, health, f"http_{response.status}")

    def record_failure(self) -> None:
        """Record that the destination failed, for example that it did not respond."""
        self.health = DestinationHealth.UNHEALTHY

    def not_sent(self) -> None:
        """Record that nothing was sent: the units that the call took go back to their buckets."""
        self.actual_cost = dict.fromkeys(range(len(self.admitted.spent)), 0.0)

    def record_no_response(self, health: DestinationHealth, kind: str, *, sent: bool, hurried: bool) -> None:
        """Record that no response arrived, for a reason of this *kind*; *hurried*: its deadline was too short."""
        self.health, self.cause = health, kind
        self.keeps_slot = sent and kind == "timeout" and not hurried
        if not sent:
            self.not_sent()

    def record_cancelled(self, after_s: float, deadline_s: float) -> None:
        """Record that the caller stopped waiting. After a fair time that counts against the destination."""
        if not is_hurried(after_s, deadline_s):
            self.health, self.cause = DestinationHealth.UNHEALTHY, "timeout"

    def apply_observations(
        self, items: tuple[LimitObservation, ...], health: DestinationHealth, cause: str = ""
    ) -> None:
        """Record the limits in *items*, and the *health* of the destination by the response's classification."""
        self.health, self.cause = health, cause
        if not items:
            return
        observations = observations_for(self.admitted.plan, items, self.doubts)
        self.observed.update(observations.observed)
        self.actual_cost.update(observations.actual)
        self.estimated_cost.update(observations.estimated)
        self.observed_slots = observations.slots or self.observed_slots
        self.ignored = observations.ignored

    def record_health(
        self, health: DestinationHealth, observed: Mapping[int, Observation] | None = None
    ) -> None:
        """Record the health of the destination, and observations by the index of their bucket."""
        self.health = health
        self.observed.update(observed or {})


@dataclass(slots=True)
class AdmittedCall(Admission):
    """An admission with what its release needs.

    However the call ends, it is released once: by the CallAdmitter if that admitted it, else by the Admitter.

    Attributes:
        lease: The slot that is renewed for it, if it has one.
        call: The request, if the CallAdmitter admitted it.
        connection, plan: Of that request; None: the call runs without limits, and holds nothing.
        retry: Whether the call counts as a retry.
    """

    request: AdmissionRequest = field(kw_only=True)
    lease: HeldLease | None = None
    call: CallRequest | None = None
    connection: Connection | None = None
    plan: Plan | None = None
    retry: bool = False
