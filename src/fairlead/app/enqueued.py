"""The result of `enqueue`: the id of the job, and the state of the job that had its unique key."""

from __future__ import annotations

from uuid import UUID, SafeUUID

from fairlead.policy.jobs.job import KeyState


class EnqueuedJob(UUID):
    """The id of the job that does the work, as a UUID.

    *key_state* is the state that the job with its unique key had at the enqueue.

    - ``none``: no job had the key, or you gave none. Your job is stored.
    - ``waiting``: a job that has not started; this is its id.
    - ``running``: a job that runs. Your job is stored beside it (``unique_while="follow_up"`` or
      ``"waiting"``), or this is the id of the running job (``"open"``, or within its ``unique_for_s``).
    - ``finished``: a job that has ended within its ``unique_for_s``; this is its id.

    A library that serializes exact UUIDs only, such as orjson, needs ``str(job)`` or ``default=str``.
    """

    __slots__ = ("key_state",)
    is_safe = SafeUUID.unknown  # type: ignore[misc]  # the same for every id, so no slot is needed
    key_state: KeyState

    def __init__(self, job_id: UUID, key_state: KeyState = "none") -> None:
        put = object.__setattr__  # UUID.__setattr__ refuses, and UUID.__init__ is slow
        put(self, "int", job_id.int)
        put(self, "key_state", key_state)

    def __reduce__(self) -> tuple[type[EnqueuedJob], tuple[UUID, KeyState]]:
        return EnqueuedJob, (UUID(int=self.int), self.key_state)
