"""Named points at which a test can kill or stop this process, or raise an error.

``faultpoint("token.after_sent")`` does nothing unless ``FAIRLEAD_FAULT`` arms it, as ``name:nth:action``,
separated by commas. Actions are ``kill`` (SIGKILL to this process), ``stop`` (SIGSTOP) and ``raise`` (an
ordinary error). A lint test compares POINTS with the calls.
"""

from __future__ import annotations

import os
import signal

POINTS = frozenset(
    {
        "job.after_claim",
        "job.before_run",
        "job.after_run",
        "job.before_ack",
        "job.within_ack",
        "job.after_ack",
        "token.after_intent",
        "token.after_sent",
        "token.before_write",
        "token.after_answer",
        "token.after_journal",
        "token.after_settle",
        "schedule_run.before_take",
        "schedule_run.after_take",
    }
)


class InjectedFaultError(RuntimeError):
    """The error that a fault point with the action ``raise`` raises."""


def _parse(plan: str) -> dict[str, tuple[int, str]]:
    armed: dict[str, tuple[int, str]] = {}
    for item in filter(None, plan.split(",")):
        name, nth, action = item.split(":")
        if name not in POINTS:
            raise ValueError(f"unknown fault point {name!r} hint: one of {', '.join(sorted(POINTS))}")
        armed[name] = (int(nth), action)
    return armed


_armed = _parse(os.environ.get("FAIRLEAD_FAULT", ""))
_passes: dict[str, int] = {}


def faultpoint(name: str) -> None:
    """Pass the point *name*; act if this is the pass for which it is armed."""
    if not _armed:
        return
    _passes[name] = _passes.get(name, 0) + 1
    nth, action = _armed.get(name, (0, ""))
    if _passes[name] == nth:
        _act(name, action)


def _act(name: str, action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        raise InjectedFaultError(f"fault injected at {name}")
