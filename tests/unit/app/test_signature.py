"""Parameters of handlers and args of jobs: what fits, what is refused, and what is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr, computed_field

from fairlead.app.signature import Signature
from fairlead.errors import InvalidConfigError, InvalidInputError

if TYPE_CHECKING:
    from fairlead.nowhere import ContextOfTypeCheckersOnly


class Size(Enum):
    SMALL = "s"


class Line(BaseModel):
    sku: str
    count: int = 1


class Order(BaseModel):
    order_id: int
    at: datetime
    lines: list[Line] = []


@dataclass
class Parcel:
    weight: Decimal
    codes: tuple[int, ...] = ()


class Renamed(BaseModel):
    order_id: int = Field(alias="orderId")


class Lopsided(BaseModel):
    order_id: int = Field(validation_alias="in", serialization_alias="out")


class Computed(BaseModel, extra="forbid"):
    side: int

    @computed_field
    def area(self) -> int:
        return self.side**2


async def several(ctx: ContextOfTypeCheckersOnly, order_id: int, note: str | None = None) -> None: ...
async def typed(
    ctx: Any, at: datetime, day: date, owner: UUID, size: Size, price: Decimal, line: Line, ids: set[int]
) -> None: ...
async def one_model(ctx: Any, order: Order) -> None: ...
async def one_dataclass(ctx: Any, parcel: Parcel) -> None: ...
async def optional_model(ctx: Any, order: Order | None = None) -> None: ...
async def bounded(ctx: Any, count: Annotated[int, Field(gt=3)]) -> None: ...
async def open_ended(ctx: Any, first: int, **others: Any) -> None: ...
async def context_only(ctx: Any) -> None: ...
async def odd_names(ctx: Any, json: int, copy: int, model_dump: int, _hidden: int, schedule: str) -> None: ...
async def renamed(ctx: Any, order: Renamed) -> None: ...


def signature(function: Callable[..., object]) -> Signature:
    return Signature("work", function)


def back_and_forth(function: Callable[..., object], *args: Any, **kwargs: Any) -> tuple[dict[str, Any], Any]:
    """What is stored for a call, and what a run is then called with."""
    job_signature = signature(function)
    stored = job_signature.of_args(job_signature.of_call(args, kwargs))
    return stored, job_signature.call_for(stored, tenant="acme")


def test_parameters_are_stored_by_name_and_defaults_are_left_to_the_function() -> None:
    assert back_and_forth(several, 42) == ({"order_id": 42}, ((), {"order_id": 42}))
    assert back_and_forth(several, "42", note="x")[0] == {"order_id": 42, "note": "x"}
    assert back_and_forth(several, order_id=1, note=None)[0] == {"order_id": 1, "note": None}


def test_values_arrive_as_their_types() -> None:
    fields = {
        "at": datetime(2026, 1, 2, 3, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "owner": UUID(int=7),
        "size": Size.SMALL,
        "price": Decimal("9.90"),
        "line": Line(sku="x"),
        "ids": {1},
    }
    stored, call = back_and_forth(typed, **fields)
    assert call == ((), fields)
    assert stored["price"] == "9.90"
    assert stored["line"] == {"sku": "x"}


@pytest.mark.slow
@settings(max_examples=25)
@given(st.datetimes(timezones=st.just(UTC)), st.lists(st.builds(Line, sku=st.text(), count=st.integers())))
def test_a_model_comes_back_as_it_was(at: datetime, lines: list[Line]) -> None:
    order = Order(order_id=1, at=at, lines=lines)
    assert back_and_forth(one_model, order)[1] == ((order,), {})


def test_the_fields_of_one_model_are_the_args() -> None:
    order = Order(order_id=1, at=datetime(2026, 1, 1, tzinfo=UTC))
    by_object, by_name = back_and_forth(one_model, order), back_and_forth(one_model, order=order)
    by_fields = back_and_forth(one_model, order_id=1, at="2026-01-01T00:00:00Z")
    assert by_object == by_name
    assert by_fields[1] == by_object[1]
    assert set(by_object[0]) == {"order_id", "at", "lines"}
    assert signature(one_model).of_args({"order_id": 1, "at": "2026-01-01T00:00:00Z"}) == by_fields[0]
    parcel = Parcel(Decimal(2), (1, 2))
    assert back_and_forth(one_dataclass, parcel)[1] == ((parcel,), {})
    assert back_and_forth(renamed, Renamed(orderId=3))[0] == {"orderId": 3}


def test_a_model_that_may_be_absent_is_a_parameter_like_others() -> None:
    assert back_and_forth(optional_model) == ({}, ((), {}))
    order = Order(order_id=1, at=datetime(2026, 1, 1, tzinfo=UTC))
    assert set(back_and_forth(optional_model, order)[0]) == {"order"}


def test_any_name_will_do_and_what_is_left_over_goes_where_it_is_taken() -> None:
    names = {"json": 1, "copy": 2, "model_dump": 3, "_hidden": 4, "schedule": "x"}
    assert back_and_forth(odd_names, **names) == (names, ((), names))
    assert back_and_forth(open_ended, 1, b=2, run_at="x")[1] == ((), {"first": 1, "b": 2, "run_at": "x"})


def test_a_handler_of_the_context_alone_takes_anything() -> None:
    job_signature = signature(context_only)
    assert job_signature.of_args({"a": 1}) == job_signature.of_call((), {"a": 1}) == {"a": 1}
    assert job_signature.call_for({"a": 1}, tenant="acme") == ((), {})
    with pytest.raises(InvalidInputError, match="by name"):
        job_signature.of_call((1,), {})


def test_handler_may_omit_the_args_that_a_schedule_adds() -> None:
    fired = {"order_id": 1, "schedule": "nightly", "run_at": "2026-01-01T00:00:00+00:00", "coalesced": 0}
    assert signature(several).call_for(fired, tenant="acme") == ((), {"order_id": 1})


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "expected"),
    [
        (several, (), {}, "order_id"),
        (several, (1, 2, 3), {}, "too many"),
        (several, (1,), {"nots": "x"}, "nots"),
        (several, ("many",), {}, "order_id: Input should be a valid integer"),
        (bounded, (3,), {}, "count: Input should be greater than 3"),
        (one_model, (), {"order_id": 1}, "at: Field required"),
        (one_model, (7,), {}, "order_id|Order"),
        (context_only, (1,), {}, "by name"),
    ],
)
def test_args_that_do_not_fit_are_refused_by_name(
    function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InvalidInputError, match=expected) as refused:
        signature(function).of_call(args, kwargs, tenant="acme")
    assert "these args do not fit kind 'work'" in str(refused.value)
    assert "tenant='acme'" in str(refused.value)
    assert "hint: " in str(refused.value)


@pytest.mark.parametrize("stored", [{}, {"order_id": None}, {"order_id": 1, "later": 2}, {"order_id": []}])
def test_stored_args_that_do_not_fit_are_a_permanent_failure(stored: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=r"order_id|later") as refused:
        signature(several).call_for(stored, tenant="acme")
    assert refused.value.category == "permanent_request"
    assert "dlq show" in refused.value.hint


def test_no_value_is_told() -> None:
    with pytest.raises(InvalidInputError) as refused:
        signature(several).of_call(("hunter2",), {"note": ["hunter2"]})
    assert "hunter2" not in str(refused.value)
    many = {f"k{n}": n for n in range(9)}
    with pytest.raises(InvalidInputError, match=r"7 more"):
        signature(several).of_args(many)


async def lopsided(ctx: Any, order: Lopsided) -> None: ...
async def computed(ctx: Any, square: Computed) -> None: ...
async def anything(ctx: Any, value: Any) -> None: ...


def test_args_that_cannot_be_read_back_are_refused() -> None:
    """Else each of its runs would fail, long after whoever could mend it has gone."""
    with pytest.raises(InvalidInputError, match="in: Field required"):
        signature(lopsided).of_args({"in": 1})
    with pytest.raises(InvalidInputError, match="area"):
        signature(computed).of_args({"side": 2})
    with pytest.raises(InvalidInputError, match="serialize"):
        signature(anything).of_args({"value": object()})


# ---- functions that are no handlers ----------------------------------------------------------------


class Foreign:
    pass


async def nothing() -> None: ...
async def by_keyword(*, ctx: Any) -> None: ...
async def by_place(ctx: Any, order_id: int, /) -> None: ...
async def of_any_number(ctx: Any, *orders: int) -> None: ...
async def of_no_type(ctx: Any, x: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821
async def of_foreign_type(ctx: Any, x: Foreign) -> None: ...
async def secret(ctx: Any, password: SecretStr | None) -> None: ...


class WithSecret(BaseModel):
    password: SecretStr


async def secret_inside(ctx: Any, login: WithSecret) -> None: ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (nothing, "takes no context"),
        (by_keyword, "takes no context"),
        (by_place, "by place"),
        (of_any_number, "by place"),
        (of_no_type, "'Missing' is not defined"),
        (of_foreign_type, "Foreign"),
        (secret, "'password' of kind 'work' is a secret"),
        (secret_inside, "'password' of kind 'work' is a secret"),
    ],
)
def test_a_function_that_cannot_be_a_handler_is_refused_where_it_is_declared(
    function: Callable[..., object], expected: str
) -> None:
    with pytest.raises(InvalidConfigError, match=expected) as refused:
        signature(function)
    assert "hint: " in str(refused.value)


class Position(BaseModel):
    zip: int


def test_a_refusal_repeats_no_key_that_is_data() -> None:
    async def work(ctx: object, count: int, positions: dict[str, Position]) -> None: ...

    signature = Signature("work", work)
    for args in (
        {"count": "hunter-pass-phrase", "positions": {}},
        {"count": 1, "positions": {"hunter-pass-phrase": {"zip": "x"}}},
        {"count": 1, "positions": {}, "hunter-pass-phrase": 1},
    ):
        for check in (
            lambda args=args: signature.of_args(args),
            lambda args=args: signature.of_call((), args),
        ):
            with pytest.raises(InvalidInputError) as refused:
                check()
            assert "hunter-pass-phrase" not in str(refused.value)
    with pytest.raises(InvalidInputError, match=r"positions\.x\.zip"):
        signature.of_args({"count": 1, "positions": {"x": {"zip": "x"}}})
    with pytest.raises(InvalidInputError, match="argument 'cuont'"):
        signature.of_call((), {"cuont": 1, "count": 1, "positions": {}})
