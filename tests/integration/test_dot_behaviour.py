"""How django-oauth-toolkit treats a refresh token seen before: the findings of README.md, pinned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from fairlead.adapters.embedded import Endpoints
from tests.integration.dot import DotServer, LiveGrant, dot_server

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

TTL_S = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lenient(
    endpoints: Endpoints, dot_template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DotServer]:
    """Grace of two minutes."""
    folder = tmp_path_factory.mktemp("lenient")
    async with dot_server(
        endpoints.database_url, dot_template, folder, users=4, grace_s=120, ttl_s=TTL_S
    ) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def strict(
    endpoints: Endpoints, dot_template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DotServer]:
    """No grace."""
    folder = tmp_path_factory.mktemp("strict")
    async with dot_server(
        endpoints.database_url, dot_template, folder, users=2, grace_s=0, ttl_s=TTL_S
    ) as server:
        yield server


@pytest.fixture(scope="module")
def users() -> Iterator[int]:
    """A user of its own for each test, whatever their order."""
    return iter(range(4))


async def _refresh(server: DotServer, token: str) -> tuple[int, dict[str, Any]]:
    form = {"grant_type": "refresh_token", "refresh_token": token, **server.app}
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.token_url, data=form) as response,
    ):
        return response.status, await response.json()


async def _live(server: DotServer, user: str) -> list[LiveGrant]:
    return [grant for grant in await server.live() if grant.user == user]


def _events(server: DotServer, user: str) -> list[str]:
    return [line["event"] for line in server.record() if line.get("user") == user]


async def test_inside_the_grace_the_same_pair_is_given_again(
    lenient: DotServer, users: Iterator[int]
) -> None:
    grant = lenient.grants[next(users)]
    _, reply = await _refresh(lenient, grant["refresh_token"])
    _, again = await _refresh(lenient, grant["refresh_token"])

    pair = (reply["access_token"], reply["refresh_token"])
    assert (again["access_token"], again["refresh_token"]) == pair
    [live] = await _live(lenient, grant["user"])
    assert (live.access_token, live.refresh_token) == pair
    assert _events(lenient, grant["user"]) == ["rotated", "repeated"]


async def test_a_repeated_answer_claims_the_whole_lifetime_of_an_older_token(
    lenient: DotServer, users: Iterator[int]
) -> None:
    """So its life counts from the first send, never from the repetition."""
    grant = lenient.grants[next(users)]
    await _refresh(lenient, grant["refresh_token"])
    [grant_before] = await _live(lenient, grant["user"])
    _, again = await _refresh(lenient, grant["refresh_token"])
    [grant_after] = await _live(lenient, grant["user"])

    assert again["expires_in"] == TTL_S
    assert grant_after.access_expires_at == grant_before.access_expires_at


async def test_inside_the_grace_many_at_once_get_the_same_pair(
    lenient: DotServer, users: Iterator[int]
) -> None:
    """A dead process's request may still be under way while its successor repeats it."""
    grant = lenient.grants[next(users)]
    answers = await asyncio.gather(*(_refresh(lenient, grant["refresh_token"]) for _ in range(8)))

    assert {status for status, _ in answers} == {200}
    assert len({answer["refresh_token"] for _, answer in answers}) == 1
    assert len(await _live(lenient, grant["user"])) == 1


async def test_once_the_successor_was_used_its_predecessor_is_reuse_even_inside_the_grace(
    lenient: DotServer, users: Iterator[int]
) -> None:
    grant = lenient.grants[next(users)]
    _, second = await _refresh(lenient, grant["refresh_token"])
    await _refresh(lenient, second["refresh_token"])
    status, answer = await _refresh(lenient, grant["refresh_token"])

    assert (status, answer["error"]) == (400, "invalid_grant")
    assert await _live(lenient, grant["user"]) == []  # the whole family is gone, the newest token too
    assert _events(lenient, grant["user"]) == ["rotated", "rotated", "reused"]


async def test_without_a_grace_any_second_use_ends_the_family(strict: DotServer) -> None:
    grant, bystander = strict.grants
    await _refresh(strict, grant["refresh_token"])
    status, answer = await _refresh(strict, grant["refresh_token"])

    assert (status, answer["error"]) == (400, "invalid_grant")
    assert [live.user for live in await strict.live()] == [bystander["user"]]
    assert _events(strict, grant["user"]) == ["rotated", "reused"]
