"""What a user writes: handlers that call, fail, crash and log, careless with the secrets in their hands.

Copied into the folder of the run as ``shop.py``. CANARIES names the file with the secrets: place to secret.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
import warnings
from pathlib import Path

from fairlead import Fairlead, JobContext

fl = Fairlead.from_env()
SECRETS: dict[str, str] = json.loads(Path(os.environ["CANARIES"]).read_text())
LOGGER = logging.getLogger("shop")


@fl.job("call", retry=0, timeout_s=20)
async def call(ctx: JobContext, vendor: str, mood: str) -> int:
    """Calls with secrets in query, header and body; whatever fails, fails the job."""
    async with fl.client(ctx.tenant, vendor) as api:
        response = await api.post(
            f"/{mood}",
            params={"signature": SECRETS["query of a call"]},
            json={"password": SECRETS["body of a call"]},
            headers={"X-Secret-Token": SECRETS["header of a call"]},
            deadline_s=3,
            max_body_bytes=1 << 20,
        )
        return response.status_code


@fl.job("lists", retry=0)
async def lists(ctx: JobContext) -> int:
    """A list whose next page has the token in its address."""
    async with fl.client(ctx.tenant, "stripe") as api:
        pages = {"kind": "link", "items": "results", "next": "next"}
        listing = api.paginate("/leads", pages=pages, pagination="requeue_job")
        request_count = 0
        async for _ in listing.pages():
            request_count += 1
            if request_count == 3:
                raise ValueError("enough pages")
        return request_count


@fl.job("raises", retry=0)
async def raises(ctx: JobContext, how: str) -> None:
    """Fails with secrets in the error, in its cause, in its notes, in its group, and in local variables."""
    secret = SECRETS["local variable of a handler"]
    message = SECRETS["error of a handler"]
    token = await fl.token(ctx.tenant, "hubspot")
    access_token = token.access_token.reveal()
    if how == "chain":
        try:
            raise KeyError(message)
        except KeyError as error:
            raise RuntimeError(f"answer: {{'access_token': '{access_token}'}} ({len(secret)})") from error
    if how == "group":
        raise ExceptionGroup(
            "several", [OSError(f"password={SECRETS['password in an error']}"), ValueError(message)]
        )
    if how == "note":
        problem = ValueError(f"Authorization: Bearer {access_token}")
        problem.add_note(message)
        raise problem
    if how == "url":
        raise ConnectionError(f"https://me:{SECRETS['password in an error']}@vendor.example/x?code={message}")
    raise SystemExit(f"the key was {message}")


@fl.job("noisy", retry=0)
async def noisy(ctx: JobContext) -> str:
    """Logs, warns, blocks the loop, loses a task and a thread: all with secrets in hand."""
    secret, word = SECRETS["log of a handler"], SECRETS["password in an error"]
    LOGGER.warning("got %s for %r", secret, {"client_secret": word})
    LOGGER.info("%d", secret)
    logging.getLogger("some.library").debug("POST /x?api_key=%s", word, extra={"token": secret})
    warnings.warn(f"the token {secret} is old", DeprecationWarning, stacklevel=1)

    async def lost() -> None:
        raise ValueError(secret)

    task = asyncio.create_task(lost())
    await asyncio.sleep(0)
    del task

    def crash(token: str) -> None:
        raise RuntimeError(f"the thread had {token}")

    thread = threading.Thread(target=crash, args=(secret,))
    thread.start()
    thread.join()
    asyncio.get_running_loop().call_soon(_slow, secret)
    await asyncio.sleep(0.3)
    return "done"


def _slow(token: str) -> None:
    """Blocks the loop, so that asyncio's debug mode tells of it, with *token* among its words."""
    time.sleep(0.15)


@fl.job("dies", retry=0)
async def dies(ctx: JobContext) -> None:
    """Ends the process as a bug in C does: with a traceback on stderr, and nothing else."""
    secret = SECRETS["local variable of a handler"]
    assert secret
    os.abort()


@fl.on("needs_reauth")
async def on_event(event: dict[str, object]) -> None:
    """A subscriber that fails with a secret."""
    raise RuntimeError(SECRETS["error of a subscriber"])
