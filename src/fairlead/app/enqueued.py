"""The result of `enqueue`: the id of the job, and what its unique key met."""

from __future__ import annotations

from uuid import UUID, SafeUUID

from fairlead.policy.jobs.job import KeyMet


class EnqueuedJob(UUID):
    """The id of a job that does the work, as a UUID; *met* says what its unique key met at the enqueue.

    - ``none``: no job with this key, or none was given; this one is stored.
    - ``waiting``: a job that has not begun answers, and this is its id.
    - ``running``: a job runs. This one is stored (``unique_while="follow_up"`` or ``"waiting"``), or the
      running one answers (``"open"``, or its ``unique_for_s``).
    - ``finished``: a job that has ended answers, since its ``unique_for_s`` is not over.

    A library that serializes exact UUIDs only, such as orjson, needs ``str(job)`` or ``default=str``.
    """

    __slots__ = ("met",)
    is_safe = SafeUUID.unknown  # type: ignore[misc]  # the same for every id, so no slot is needed
    met: KeyMet

    def __init__(self, job_id: UUID, met: KeyMet = "none") -> None:
        put = object.__setattr__  # UUID.__setattr__ refuses, and UUID.__init__ is slow
        put(self, "int", job_id.int)
        put(self, "met", met)

    def __reduce__(self) -> tuple[type[EnqueuedJob], tuple[UUID, KeyMet]]:
        return EnqueuedJob, (UUID(int=self.int), self.met)
