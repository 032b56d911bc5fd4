"""The ceilings of the guard by counts: what one hot operation may cost at most.

A change that makes an operation dearer raises a ceiling here, in the same commit, and its reason says what
was bought. Lower a ceiling when a change made the operation cheaper. `python -m tests.counts.measure` prints
the figures as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

MARGIN = 1.03
"""A figure that varies a little may be so many times its ceiling."""
PYTHON = (3, 11)
"""Calls are counted under this version only: others inline other things."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that a figure may be. *exact*: no margin; *calls*: it depends on the version of Python."""

    figure: str
    at_most: float
    reason: str
    exact: bool = False
    calls: bool = False

    def is_passed_by(self, measured: float) -> bool:
        """Return whether *measured* is too much."""
        return measured > self.at_most * (1.0 if self.exact else MARGIN) + 1e-9


def _exact(figure: str, at_most: float, reason: str) -> Ceiling:
    return Ceiling(figure, at_most, reason, exact=True)


def _calls(figure: str, at_most: float, reason: str) -> Ceiling:
    return Ceiling(figure, at_most, reason, calls=True)


CEILINGS = (
    _exact("refresh.alone.executor_jobs", 0.0, "the look into the journals of this host needs no thread"),
    _exact("refresh.alone.wake_ups", 1.0, "the answer that is on disk"),
    _exact("refresh.alone.statements", 4.0, "read, permit of the endpoint with INTENT, SENT, settle"),
    _calls("refresh.alone.python_calls", 2609.0, "no thread to look; one statement for permit and INTENT"),
    _calls("refresh.alone.c_calls", 1683.0, "no thread to look; one statement for permit and INTENT"),
    Ceiling("refresh.alone.garbage", 8.0, "asyncio's own: a closed transport and its method"),
    _exact("refresh.herd.executor_jobs", 0.01, "as alone; a file that is full is followed by another"),
    _exact("refresh.herd.wake_ups", 0.02, "one or two commits of the journal for all"),
    _exact("refresh.herd.statements", 0.05, "as alone, but one statement for all that wait for the same"),
    _calls("refresh.herd.python_calls", 1369.0, "no thread to look; one form, one JSON"),
    _calls("refresh.herd.c_calls", 865.0, "no thread to look; one form, one JSON"),
    Ceiling("refresh.herd.garbage", 9.0, "asyncio's own: a closed transport and its method"),
    _exact("call.executor_jobs", 0.0, "a call needs no thread"),
    _exact("call.wake_ups", 0.0, "a call needs no thread"),
    _exact("call.statements", 0.0, "its token and its limits are cached"),
    _calls("call.python_calls", 524.0, "as found; a slow server makes it 16 more"),
    _calls("call.c_calls", 356.0, "as found"),
    _exact("call.garbage", 0.0, "reference counts free all of a call"),
    _exact("admission.script_calls", 1.1, "the end of a call shares the script of the next admission"),
    _exact("job.executor_jobs", 0.0, "an async handler needs no thread"),
    _exact("job.wake_ups", 0.0, "an async handler needs no thread"),
    Ceiling("job.statements", 0.10, "of a hundred: enqueue, notify, claims, acknowledgements"),
    _calls("job.python_calls", 182.0, "as found; it varies with the number of claims"),
    _calls("job.c_calls", 137.0, "as found; it varies with the number of claims"),
    _exact("job.garbage", 0.0, "reference counts free all of a job"),
    Ceiling("job.claim.wal_bytes", 430.0, "the row, its indexes, and its share of the lane"),
    Ceiling("job.completion.wal_bytes", 332.0, "the row, its indexes, and its share of the lane"),
)
"""Counted are operations one after the other (alone, call), or a share of a hundred at once (herd, job)."""
