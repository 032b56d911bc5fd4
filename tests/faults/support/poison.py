"""A child whose jobs are poison: ``fault.NAME`` returns or raises what support/vectors.py has by that name.

A transient failure is tried again twice, soon. Each run is told to the sink before anything else.

Among what is ``unsafe``:
plain_texts     errors are stored as they read
plain_results   results are stored as JSON has them
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from types import ModuleType
from typing import Any

from fairlead.adapters.postgres import job_rows
from fairlead.engine.jobs import executor as executor_module
from fairlead.engine.jobs import outcome_decider as decider_module
from fairlead.engine.jobs import stored_results as results_module
from fairlead.engine.jobs.handler import Handler, JobContext
from fairlead.engine.ports import NewJob
from fairlead.errors import InvalidInputError
from fairlead.policy.failures import category as category_module
from fairlead.policy.failures.backoff import Jitter
from fairlead.policy.failures.retry import RetryPolicy
from tests.faults.support import worker
from tests.faults.support.vectors import ERRORS, OUTCOMES, PAYLOADS, RESULTS

RETRIES = 2
SOON = RetryPolicy.uniform(RETRIES, base_s=0.02, cap_s=0.05, jitter=Jitter.FULL)


def main(channel: socket.socket, order: dict[str, Any]) -> None:
    """As support/worker.py."""
    unsafe = order.get("unsafe", ())
    if "plain_texts" in unsafe:
        for module in (executor_module, decider_module, results_module, category_module, job_rows):
            _replace(module, "safe_text", _plain_text)
    if "plain_results" in unsafe:
        _replace(decider_module, "to_storable", lambda result: result)
    if unsafe:
        _replace(job_rows, "tamed", lambda value, _most=0: json.dumps(value))
    worker._Worker = _Worker  # type: ignore[misc]
    worker.main(channel, order)


def _replace(module: ModuleType, name: str, value: object) -> None:
    """Replace *name* in *module*; raise AttributeError if it is not there, as after a rename."""
    getattr(module, name)
    setattr(module, name, value)


def _plain_text(value: object, _most: int = 0, *, mask_known: bool = True) -> str:
    return str(value)


class _Worker(worker._Worker):
    def handlers(self) -> list[Handler]:
        kinds: dict[str, Any] = {
            **{name: self._returns(make) for name, make in RESULTS.items()},
            **{name: self._raises(make) for name, make in ERRORS.items()},
            **{name: self._returns(make) for name, make in OUTCOMES.items()},
            "context_snooze": self._context_snooze,
            "cancels_itself": self._cancels_itself,
            "reads_args": self._reads_args,
        }
        poison = [Handler(f"fault.{name}", run, retry=SOON) for name, run in kinds.items()]
        return [*super().handlers(), *poison]

    def _tell(self, context: JobContext) -> None:
        assert self._sink is not None
        job = context.job
        self._sink.write(ev="began", job=str(job.job_id), lease=str(job.lease_id), n=-1)

    def _returns(self, make: Callable[[], object]) -> Any:
        async def run(context: JobContext) -> object:
            self._tell(context)
            return make()

        return run

    def _raises(self, make: Callable[[], BaseException]) -> Any:
        async def run(context: JobContext) -> object:
            self._tell(context)
            raise make()

        return run

    async def _context_snooze(self, context: JobContext) -> object:
        """It asks for what it may not have, and goes on as if nothing had been said."""
        self._tell(context)
        for wrong in (float("nan"), -1.0, "soon"):
            try:
                context.snooze(wrong)  # type: ignore[arg-type]
            except InvalidInputError:
                continue
            return "an impossible snooze was taken"
        return None

    async def _cancels_itself(self, context: JobContext) -> object:
        self._tell(context)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return None

    async def _reads_args(self, context: JobContext) -> object:
        """As handlers do: it takes for granted what its caller should have sent."""
        self._tell(context)
        return {"first": context.args["first"], "all": dict(context.args)}

    async def do_enqueue_poison(self, names: list[str]) -> dict[str, Any]:
        """Enqueue a job with each of these payloads: what was said to each."""
        errors_by_name: dict[str, str] = {}
        for name in names:
            job = NewJob(
                job_id=self.runtime.ids.uuid7(),
                kind="fault.reads_args",
                tenant_id="poison",
                args=PAYLOADS[name](),
            )
            try:
                await self.runtime.jobs.enqueue([job])
                errors_by_name[name] = "stored"
            except Exception as error:
                errors_by_name[name] = type(error).__name__
        return {"told": errors_by_name}
