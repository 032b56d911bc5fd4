"""Handlers of one line, for tests of what becomes of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fairlead.engine.jobs.handler import JobContext

Run = Callable[[JobContext], Awaitable[object]]


def returning(value: object) -> Run:
    """Return a run that ends with *value*."""

    async def run(context: JobContext) -> object:
        return value

    return run


def raising(error: BaseException) -> Run:
    """Return a run that ends with *error*."""

    async def run(context: JobContext) -> object:
        raise error

    return run
