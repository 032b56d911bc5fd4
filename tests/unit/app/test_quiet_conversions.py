"""What a user wrote is kept as it is or refused: nothing becomes something else without a word."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from fairlead import Fairlead, JobContext
from fairlead.assembly.config import load
from fairlead.assembly.doctor.server_checks import inspect_redis
from fairlead.assembly.providers import ProfileRegistry
from fairlead.cli.kit.output import Output
from fairlead.cli.providers import _admitted
from fairlead.errors import InvalidConfigError, InvalidInputError, ProviderNotFoundError
from fairlead.policy.providers.profile_limits import CallLimitConfig
from fairlead.policy.providers.setting_names import SETTING_NAMES, check_setting_names
from fairlead.testing import MemoryFairlead

NAN = float("nan")


class Loose(BaseModel):
    data: Any = None


@dataclass
class Row:
    value: Any


@pytest.fixture
def fl(tmp_path: Path) -> Fairlead:
    return Fairlead.from_env({"FAIRLEAD_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("1.0\n", "may hold printable characters only"),
        ("\x1b[31m1.0", "printable characters only"),
        ("\u202e0.1", "printable characters only"),
        ("  ", "not only spaces"),
        ("1" * 101, "at most 100 characters"),
    ],
)
def test_a_version_of_the_application_that_would_garble_a_listing_is_refused(
    version: str, problem: str
) -> None:
    with pytest.raises(
        InvalidConfigError, match=rf"^app_version .*{problem}.* \[environment FAIRLEAD_APP_VERSION"
    ):
        load({"FAIRLEAD_APP_VERSION": version})
    assert load({"FAIRLEAD_APP_VERSION": "v1.0+é 2"}).settings.app_version == "v1.0+é 2"


@pytest.mark.parametrize(
    "data", [NAN, {"a": NAN}, [1.0, NAN], {NAN}, deque([NAN]), Loose(data={"a": NAN}), Row(NAN), Row({NAN})]
)
async def test_nan_is_refused_and_never_stored_as_null(fl: Fairlead, data: object) -> None:
    @fl.job
    async def named(ctx: JobContext, data: Any) -> None: ...

    @fl.job
    async def model(ctx: JobContext, loose: Loose) -> None: ...

    async with MemoryFairlead(fl):
        for handler in (named, model):
            with pytest.raises(InvalidInputError, match=r"args\.data.* is nan"):
                await fl.enqueue(handler, {"data": data}, tenant="acme")


@pytest.mark.parametrize(
    ("returned", "stored"),
    [
        (NAN, {"unstorable": "nan"}),
        (Loose(data={"a": NAN}), {"data": {"a": {"unstorable": "nan"}}}),
        (
            {"at": Path("x"), "open": compile},
            {"at": "x", "open": {"unstorable": "<built-in function compile>"}},
        ),
        ([None, 1.5, "text"], [None, 1.5, "text"]),
    ],
)
async def test_a_result_that_json_cannot_say_is_marked_and_is_no_repr(
    fl: Fairlead, returned: object, stored: object
) -> None:
    @fl.job
    async def work(ctx: JobContext) -> object:
        return returned

    async with MemoryFairlead(fl) as memory:
        job_id = await work.enqueue(tenant="acme")
        await memory.drain()
        assert await fl.result(job_id) == stored


def test_a_handler_without_a_context_is_refused_where_it_is_declared(fl: Fairlead) -> None:
    async def typed(order_id: int) -> None: ...
    async def of_a_model(order: Loose) -> None: ...
    async def bare(order_id) -> None: ...  # type: ignore[no-untyped-def]
    async def quoted(order: Loose, note: str = "") -> None: ...

    for handler in (typed, of_a_model, bare, quoted):
        with pytest.raises(InvalidConfigError, match=r"takes no context.*hint: .*ctx: JobContext"):
            fl.job(handler.__name__)(handler)  # type: ignore[arg-type]


async def test_tags_that_are_no_list_and_a_pause_that_is_no_flag_are_refused(fl: Fairlead) -> None:
    async with MemoryFairlead(fl):
        for tags in ("import", {"import": 1}, None, 7):
            with pytest.raises(InvalidInputError, match=r"tags (is one text|are)"):
                await fl.enqueue("work", tenant="acme", tags=tags)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="queue"):
            await fl.enqueue("work", tenant="acme", queue="")
    for paused in ("false", 0, None):
        with pytest.raises(InvalidInputError, match="paused is"):
            fl.schedule("nightly", "@daily", "work", paused=paused)  # type: ignore[arg-type]


async def test_args_cannot_say_what_a_run_has_saved(fl: Fairlead) -> None:
    async with MemoryFairlead(fl):
        with pytest.raises(InvalidInputError, match=r"fairlead\.saved"):
            await fl.enqueue("work", {"fairlead.saved": {"page": 9}}, tenant="acme")


def test_a_context_may_be_called_and_typed_as_people_do(fl: Fairlead) -> None:
    async def bare(ctx, order_id: int) -> None: ...  # type: ignore[no-untyped-def]
    async def unused(_, order_id: int) -> None: ...  # type: ignore[no-untyped-def]
    async def anything(whatever: Any, order_id: int) -> None: ...
    async def maybe(context: JobContext | None, order_id: int) -> None: ...

    for handler in (bare, unused, anything, maybe):
        fl.job(handler.__name__)(handler)  # type: ignore[arg-type]


async def test_a_misspelt_provider_of_a_job_is_refused_with_the_nearest_name(fl: Fairlead) -> None:
    @fl.job
    async def work(ctx: JobContext) -> None: ...

    async with MemoryFairlead(fl):
        with pytest.raises(InvalidInputError, match=r"no provider 'shopfy'.*did you mean shopify\?"):
            await fl.enqueue("work", tenant="acme", provider="shopfy")
        await fl.enqueue("work", tenant="acme", provider="shopify")
        await fl.enqueue("work", tenant="acme", provider="our-own-erp")  # a label of the caller's own
    with pytest.raises(ProviderNotFoundError, match=r"did you mean hubspot\?"):
        ProfileRegistry(load({}).settings).profile("hubsport", None)


@pytest.mark.parametrize(
    ("slip", "intended"),
    [
        ("max_retry", "max_retries"),
        ("MAX_RETRIES", "max_retries"),
        ("retries", "max_retries"),
        ("concurrency", "concurrency_limit"),
    ],
)
def test_a_misspelt_setting_such_as_max_retry_is_refused_and_no_note(slip: str, intended: str) -> None:
    with pytest.raises(InvalidConfigError, match=intended):
        check_setting_names([slip], tenant="acme", provider="shopify")
    check_setting_names(
        ["note", "region", "plan", "shop_id", "owner", *SETTING_NAMES], tenant="acme", provider="shopify"
    )


@pytest.mark.parametrize(
    "name", ["DATABASE_URL", "REDIS_URL", "FAIRLEAD_MASTER_KEY_FILE", "FAIRLEAD_VAULT__KMS"]
)
def test_a_variable_that_is_set_and_empty_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"{name} is set and empty"):
        load({name: ""})
    with pytest.raises(InvalidConfigError, match=f"{name} is set and empty"):
        load({name: " \n"})
    assert load({"LOG_LEVEL": ""}).settings.log.level == "info"  # a name that others use, too


def test_an_empty_url_in_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fairlead.toml"
    for table in ("database", "redis"):
        file.write_text(f'[{table}]\nurl = ""\n')
        with pytest.raises(InvalidConfigError, match=f"{table}.url"):
            load({}, file)


def test_per_s_is_shown_as_a_rate_and_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    Output(color=False).record({"calls.per_s": 1.0, "window_s": 60.0})
    shown = capsys.readouterr().out
    assert "1/s" in shown
    assert "1m" in shown


def test_a_limit_of_5_in_1_s_says_that_it_lets_1_through_at_once_and_4_a_second() -> None:
    assert _admitted(CallLimitConfig(limit=5, window_s=1.0).bucket("x", "x")) == "1 at once, then 4/s"


async def test_doctor_without_redis_url_warns() -> None:
    check = await inspect_redis(None)
    assert (check.status, "share" in check.detail, "REDIS_URL" in check.hint) == ("warn", True, True)
