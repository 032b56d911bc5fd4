"""Misspelt options, wrong types and the wrong order of parameters are refused where they are written."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from fairlead import Fairlead, JobContext
from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.testing import MemoryFairlead


class Order(BaseModel):
    number: int = 0
    tag: str = ""


@pytest.mark.parametrize(
    ("wrong", "option"),
    [({"uniqe_key": "k"}, "unique_key"), ({"delay": 5}, "delay_s"), ({"provder": "stripe"}, "provider")],
)
async def test_a_misspelt_option_is_not_stored_as_an_arg(
    fl: Fairlead, wrong: dict[str, Any], option: str
) -> None:
    @fl.job
    async def of_context(ctx: JobContext) -> None: ...

    @fl.job
    async def of_any(ctx: JobContext, **rest: Any) -> None: ...

    @fl.job
    async def of_model(ctx: JobContext, order: Order) -> None: ...

    async with MemoryFairlead(fl) as memory:
        for function in (of_context, of_any, of_model):
            with pytest.raises(InvalidInputError, match=f"neither an option .* did you mean {option}"):
                await function.enqueue(tenant="acme", **wrong)
        assert await memory.jobs() == []
        await of_model.enqueue(tenant="acme", tag="a field of the model")
        await of_context.enqueue(tenant="acme", key="like no option")
        assert len(await memory.jobs()) == 2


@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        (None, "takes a function"),
        (lambda: None, "passes an exception and a context"),
        (lambda ctx, error: None, "passes the exception first, not 'ctx'"),
    ],
)
def test_on_error_refuses_a_function_that_it_could_not_call(fl: Fairlead, hook: Any, problem: str) -> None:
    with pytest.raises(InvalidConfigError, match=problem):
        fl.on_error(hook)


@pytest.mark.parametrize("wrong", ["1", True, 1.0])
async def test_refresh_refuses_a_generation_that_is_no_whole_number(fl: Fairlead, wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"newer_than is .*newer_than=token\.generation"):
        await fl.refresh("acme", "stripe", newer_than=wrong)


async def test_upsert_refuses_a_secret_that_is_no_text(fl: Fairlead) -> None:
    wrong: Any = 5
    with pytest.raises(InvalidInputError, match="refresh_token must be a text, not int"):
        await fl.connections.upsert("acme", "stripe", refresh_token=wrong)
