"""What a program declares of the errors of its handlers: `transient` and `fl.on_error`."""

from __future__ import annotations

import pytest

from fairlead import Fairlead, JobContext
from fairlead.errors import InvalidConfigError
from fairlead.testing import MemoryFairlead


def test_transient_exceptions_are_declared_as_a_tuple_of_classes(fl: Fairlead) -> None:
    @fl.job(transient=(LookupError,))
    async def busy(ctx: JobContext) -> None: ...

    assert busy.handler.transient == (LookupError,)
    for wrong in (LookupError, [LookupError], ("LookupError",), (LookupError(),)):
        with pytest.raises(InvalidConfigError, match="of kind 'x' is not valid"):
            fl.job("x", transient=wrong)(busy)  # type: ignore[call-overload]


async def test_on_error_is_called_with_each_exception_by_which_a_run_fails(fl: Fairlead) -> None:
    conversions: list[tuple[str, str]] = []

    @fl.on_error
    def is_broken(error: Exception, ctx: JobContext) -> None:
        raise RuntimeError("the others are called all the same")

    @fl.on_error
    def report(error: Exception, ctx: JobContext) -> None:
        conversions.append((repr(error), ctx.tenant))

    @fl.job(retry=1)
    async def breaks(ctx: JobContext) -> None:
        raise KeyError("price")

    with pytest.raises(InvalidConfigError, match="on_error takes a plain function"):

        @fl.on_error  # type: ignore[arg-type]
        async def waits(error: Exception, ctx: JobContext) -> None: ...

    class Waits:
        async def __call__(self, error: Exception, ctx: JobContext) -> None: ...

    with pytest.raises(InvalidConfigError, match="on_error takes a plain function"):
        fl.on_error(Waits())

    async with MemoryFairlead(fl) as memory:
        await breaks.enqueue(tenant="acme")
        await memory.drain()
        assert conversions == [("KeyError('price')", "acme")]
        with pytest.raises(InvalidConfigError, match="on_error is too late"):
            fl.on_error(report)
