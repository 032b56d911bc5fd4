"""The Python door: keep tokens fresh and run jobs from inside your own program.

    fl = Fairlead.from_env()

    @fl.job
    async def greet(ctx: JobContext, name: str) -> str:
        return f"hello {name}"

    async with fl:
        token = await fl.token("acme", "mercadolibre")
        await greet.enqueue(name="Ada", tenant="acme")

A ``Fairlead`` owns nothing global: make as many as you like, inside any asyncio program. It reads, refreshes
and enqueues; with ``await fl.run()`` it also works, which is what ``fairlead run --app`` does.
"""

from __future__ import annotations

from fairlead.app.enqueued import EnqueuedJob
from fairlead.app.fairlead import Fairlead
from fairlead.app.job_functions import BoundJob, JobFunction
from fairlead.app.job_requests import JobOptions, JobRequest
from fairlead.app.sync import SyncFairlead

__all__ = ["BoundJob", "EnqueuedJob", "Fairlead", "JobFunction", "JobOptions", "JobRequest", "SyncFairlead"]
