"""A rude API as a process: ready line, control API, clean end."""

from __future__ import annotations

import asyncio
import sys

import pytest

from fairlead.errors import DependencyUnavailableError, InvalidInputError
from fairlead.testing.api import ApiProcess, MercadoLibreApi
from tests.contract.api_calls import calling, token

pytestmark = pytest.mark.slow


async def test_process_is_switched_and_shows_its_ledger_over_http() -> None:
    async with ApiProcess("netsuite") as api, calling(api, dialect="netsuite") as call:
        path = "/services/rest/record/v1/salesOrder"
        assert (await call(path, **token("t1"))).status == 200
        assert (await api.control("switch", unauthorised=["t1"], capacity=0.2))["capacity"] == 0.2
        assert (await call(path, **token("t1"))).status == 401
        await api.control("calm")
        assert (await call(path, **token("t1"))).status == 200
        ledger = await api.control("ledger", account="acme", arrivals=True)
        assert [arrival["status"] for arrival in ledger.pop("arrivals")] == [200, 401, 200]
        assert ledger == {"arrived": 3, "admitted": 2, "refused": 0, "in_flight": 0, "most_in_flight": 1}
        assert (await api.control("ledger", account="globex"))["arrived"] == 0
        for operation, data in (("switch", {"capacity": 2}), ("lock", {}), ("nothing", {})):
            with pytest.raises(InvalidInputError):
                await api.control(operation, **data)
    assert api.pid
    with pytest.raises(InvalidInputError, match="not running"):
        await api.control("calm")


async def test_locks_and_limits_from_outside() -> None:
    async with ApiProcess("hubspot") as api, calling(api, dialect="hubspot") as call:
        await api.control("lock", ids=["1001"])
        assert (await call("/crm/v3/objects/contacts/1001")).status == 423
        await api.control("unlock", ids=["1001"])
        assert (await call("/crm/v3/objects/contacts/1001")).status == 200
        limits = await api.control("limits", account="acme")
        assert limits["rolling"] == {"left": 98, "served": 2, "refused": 0}


async def test_its_limits_are_options() -> None:
    shop = ApiProcess("shopify", takes_s=0, limits={"calls": 2, "calls_per_s": 0.001})
    async with shop as api, calling(api, dialect="shopify") as call:
        assert [(await call("/admin/api/rest.json")).status for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("options", ["[", "[]", '{"colour": "red"}', '{"limits": {"colour": 1}}'])
async def test_options_that_cannot_be_stop_it_with_a_hint(options: str) -> None:
    code, err = await ended("shopify", "--options", options)
    assert (code, "hint: " in err, "Traceback" in err) == (2, True, False)


async def test_the_liar_is_one_too() -> None:
    async with ApiProcess("liar") as api, calling(api, dialect="standard") as call:
        assert (await call("/liar/retry_after?value=7")).headers["retry-after"] == ("7",)


async def test_a_taken_port_stops_it_with_a_hint() -> None:
    async with MercadoLibreApi() as second_api:
        api = ApiProcess("stripe", port=int(second_api.url.rpartition(":")[2]))
        with pytest.raises(DependencyUnavailableError, match="hint: choose another --port"):
            await api.start()


async def test_a_name_that_is_none_is_refused() -> None:
    code, err = await ended("nobody")
    assert (code, "shopify" in err) == (2, True)


async def ended(*arguments: str) -> tuple[int | None, str]:
    """How a process ends that was started with *arguments*, and its words."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlead.testing.api", *arguments, stderr=asyncio.subprocess.PIPE
    )
    _, err = await child.communicate()
    return child.returncode, err.decode()
