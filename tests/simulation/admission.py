"""How a call got in travels with it to the upstream, beside the product: the task that asks also sends."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from fairlead.adapters.local.local_gate import LocalGate
from fairlead.engine.ports import AdmitRequest, AdmitResult, Admitted
from fairlead.policy.limits.limit import Plan
from tests.simulation.watch import SimulatedAdmission

_latest: ContextVar[SimulatedAdmission | None] = ContextVar("fairlead_simulated_admission", default=None)


def note(ask: AdmitRequest, answer: AdmitResult, at: float, *, degraded: bool) -> None:
    """The task that runs now was answered so at *at*."""
    if isinstance(answer, Admitted):
        slot = None if ask.holder is None or ask.plan.pool is None else ask.holder.lease_id
        _latest.set(SimulatedAdmission(at, breaker_of(ask.plan), slot, ask.call_s, degraded))


def take() -> SimulatedAdmission | None:
    """That of the call that this task sends now. Each is for one sending."""
    admission = _latest.get()
    _latest.set(None)
    return admission


def breaker_of(plan: Plan) -> str:
    """A name for it; "" where the plan has none."""
    return "" if plan.breaker is None else f"{plan.domain.parts} {plan.breaker.key}"


class OwnGate(LocalGate):
    """The counts of one process while Redis is away; what it lets in is noted."""

    async def admit(self, ask: AdmitRequest) -> AdmitResult:
        """As the port says."""
        answer = await super().admit(ask)
        note(ask, answer, asyncio.get_running_loop().time(), degraded=True)
        return answer
