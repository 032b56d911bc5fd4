"""A word left on purpose in each kind of place that is searched: an empty place must not pass for clean."""

from __future__ import annotations

import asyncpg
from redis.asyncio import Redis

from tests.security.canary import places
from tests.security.canary.ground import Ground
from tests.security.canary.life import say
from tests.support.cli import Shell
from tests.support.issuer import fetch

WORD = "plantedtobefound"
SLEEPS = "import time; time.sleep(60)"
PLACE_KINDS = (
    "command connections show",
    "command lines",
    "commands that Redis was sent",
    "file planted",
    "keys and values of Redis",
    "log of ",
    "table public.planted",
    "webhooks",
)
"""How the names of these places begin."""


async def plant(ground: Ground, shell: Shell) -> None:
    """Leave WORD everywhere, while what Redis is sent is listened to."""
    connection = await asyncpg.connect(ground.endpoints.database_url)
    try:
        await connection.execute(f"CREATE TABLE public.planted AS SELECT '{WORD}' AS word")
    finally:
        await connection.close()
    async with Redis.from_url(ground.endpoints.redis_url) as client:
        await client.set("planted", WORD)
    (ground.folder / "planted").write_text(WORD)
    await say(ground, shell, "connections", "show", "--tenant", WORD, "--provider", "hubspot")
    await fetch(f"{ground.tattler.url}/hook/planted", WORD.encode())
    sleeper = await ground.start("sleeper", "-c", SLEEPS, WORD)
    ground.add("command lines", places.command_lines())
    sleeper.kill()
    await sleeper.wait()


def not_found(outputs: dict[str, bytes]) -> list[str]:
    """The kinds of place in which WORD is not, though it was left there."""
    return [
        kind
        for kind in PLACE_KINDS
        if not any(WORD.encode() in text for name, text in outputs.items() if name.startswith(kind))
    ]
