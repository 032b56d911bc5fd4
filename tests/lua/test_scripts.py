"""Scripts are put together from files, and the server gets each of them once."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from fairlead._core.secret import Secret
from fairlead.adapters.embedded import Endpoints
from fairlead.adapters.redis.connection import RedisConnection
from fairlead.adapters.redis.scripts import assemble, script, script_names

HEADER = "-- go: do it.\n-- Takes   KEYS\n-- Returns a number\n-- Writes  nothing\n-- Needs   nothing\n"
PARTS = {
    "one": "-- one: a part\n--- @include two\nlocal one = 1",
    "two": "-- two: another\nlocal two = 2",
    "bare": "local bare = 1",
}


def test_parts_are_put_in_once_and_before_what_needs_them() -> None:
    made = assemble("go", f"{HEADER}--- @include two\n--- @include one\nreturn one + two", PARTS.__getitem__)
    assert made.text.count("local two") == 1
    assert made.text.index("local two") < made.text.index("local one")
    assert "@include" not in made.text


@pytest.mark.parametrize(
    "source",
    [
        HEADER.replace("-- go:", "-- went:"),
        HEADER.replace("-- Returns a number\n", ""),
        HEADER.replace("-- Writes  nothing", "-- Writes"),
        f"{HEADER}--- @include bare\n",
    ],
)
def test_a_file_without_its_contract_is_no_script(source: str) -> None:
    with pytest.raises(ValueError, match="line"):
        assemble("go", source, PARTS.__getitem__)


def test_every_script_assembles() -> None:
    assert "gate" in script_names()
    for name in script_names():
        assert script(name).text.startswith(f"-- {name}: ")


async def test_a_server_that_forgot_a_script_is_given_it_again(servers: Endpoints) -> None:
    """A restart or SCRIPT FLUSH loses scripts, not calls (E22)."""
    client = Redis.from_url(servers.redis_url)
    link = RedisConnection(Secret(servers.redis_url))
    made = assemble("go", f"{HEADER}return ARGV[1] + 1", PARTS.__getitem__)
    try:
        for number in range(3):
            assert await link.run(made, [([], [b"%d" % number])]) == [number + 1]
            await client.script_flush()
    finally:
        await link.disconnect()
        await client.aclose()
