"""A program of a user's with fairlead inside and logs of its own: everything on, and nothing filtered.

Run in the folder of the canary run. It enqueues what ``shop.py`` knows, makes calls itself, and tells all
that it can see: each event as Python shows it, each error with its traceback, what is printed and shown.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback

from shop import SECRETS, fl

from tests.security.canary.tattler import MOODS

TENANT = "acme"


async def main() -> None:
    """Everything, once."""
    async with fl:
        fl.runtime.bus.subscribe(lambda event: print("event", repr(event), event))
        shown(fl, fl.runtime.settings, fl.runtime)
        for mood in MOODS:
            await fl.enqueue("call", tenant=TENANT, args={"vendor": "stripe", "mood": mood})
            await fl.enqueue("call", tenant=TENANT, args={"vendor": "hubspot", "mood": mood})
        for how in ("chain", "group", "note", "url", "exit"):
            await fl.enqueue("raises", tenant=TENANT, args={"how": how})
        await fl.enqueue("lists", tenant=TENANT)
        await fl.enqueue("noisy", tenant=TENANT)
        for mood in MOODS:
            await one_call("stripe", mood)
            await one_call("hubspot", mood)
        await wrong_calls()
        await tokens()


async def one_call(provider: str, mood: str) -> None:
    """A call, and what is seen of it."""
    try:
        async with fl.client(TENANT, provider) as api:
            shown(api)
            params = {"signature": SECRETS["query of a call"]}
            response = await api.get(f"/{mood}", params=params, deadline_s=2)
            shown(response)
    except Exception as error:
        record(error)


async def wrong_calls() -> None:
    """Credentials where fairlead takes none."""
    basic, password = SECRETS["basic auth of a call"], SECRETS["password in an address"]
    wrong = (
        ("/ok", {"headers": {"Authorization": f"Basic {basic}"}}),
        (f"https://me:{password}@vendor.example/ok", {}),
        ("/ok", {"headers": {"X-Bad": f"{basic}\r\nX-Evil: 1"}}),
        ("/ok", {"params": {"token": object()}, "nonsense": basic}),
        ("/ok", {"json": {"a": 1}, "content": basic}),
    )
    for path, options in wrong:
        try:
            async with fl.client(TENANT, "stripe") as api:
                await api.get(path, **options)
        except Exception as error:
            record(error)
    for fields in ({"api_key": SECRETS["wrong upsert"], "settings": {"nonsense": SECRETS["wrong upsert"]}},):
        try:
            await fl.connections.upsert(TENANT, "shopify", **fields)
        except Exception as error:
            record(error)


async def tokens() -> None:
    """What is handed out, as it prints; refreshes that are refused."""
    for tenant in (TENANT, "dying", "stuttering"):
        try:
            token = await fl.token(tenant, "hubspot")
            shown(token)
            await fl.refresh(tenant, "hubspot")
            shown(await fl.connections.get(tenant, "hubspot"))
        except Exception as error:
            record(error)


def shown(*values: object) -> None:
    """As a person prints a thing to see what it is."""
    for value in values:
        print("shown", str(value), repr(value), f"{value}")


def record(error: BaseException) -> None:
    """As an error tracker sees it, but for values of variables."""
    print("error", str(error), repr(error), error.args, "".join(traceback.format_exception(error)))
    cause = error.__cause__
    if cause is not None:
        record(cause)


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    logging.captureWarnings(True)
    asyncio.run(main(), debug=True)
