"""The demo's callers: they ask for tokens all the time, and use each one at once.

The issuer tells what a token was worth. One that had expired before it was handed out is what fairlead must
never serve; one that a customer has withdrawn is not fairlead's to know before it asks the issuer.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import aiohttp

from fairlead.app import Fairlead
from fairlead.demo.demo_plan import ACCOUNTS, DemoAccount
from fairlead.errors import FairleadError, ReauthRequiredError
from fairlead.testing.ledger import Ledger

CALLERS = 6
PAUSE_S = 0.08
USE_TIMEOUT_S = 10.0
_WHY = re.compile(r'error_description="(\w+)"')


@dataclass(frozen=True, slots=True)
class RejectedToken:
    """A token that the issuer called expired; moments on the monotonic clock that all processes share."""

    account: DemoAccount
    handed_out_s: float
    answered_s: float


@dataclass(slots=True)
class CallTally:
    """What the callers met.

    *outcomes*: ok, later (refused for now), reauth, failed, or the issuer's complaint; *expired*: tokens it
    called expired; *surprises*: errors of fairlead that no provider explains, by code.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    expired: list[RejectedToken] = field(default_factory=list)
    surprises: Counter[str] = field(default_factory=Counter)

    @property
    def calls(self) -> int:
        """How often a token was asked for."""
        return self.outcomes.total()


class Callers:
    """Plays callers until cancelled; *tally* grows meanwhile."""

    def __init__(self, fairlead: Fairlead, issuer_url: str, seed: int) -> None:
        self.tally = CallTally()
        self._fairlead = fairlead
        self._url = issuer_url
        self._draw = Random(f"{seed}:calls")  # noqa: S311 - a play, not a secret

    async def run(self) -> None:
        """Call from several sides at once."""
        timeout = aiohttp.ClientTimeout(total=USE_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as http, asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(self._call_on(http))

    async def _call_on(self, http: aiohttp.ClientSession) -> None:
        while True:
            await asyncio.sleep(PAUSE_S * 2 * self._draw.random())
            account = self._draw.choice(ACCOUNTS)
            self.tally.outcomes[await self._call(http, account)] += 1

    async def _call(self, http: aiohttp.ClientSession, account: DemoAccount) -> str:
        key = account.key
        try:
            token = await self._fairlead.token(key.tenant, key.provider, key.account)
            handed_out_s = time.monotonic()
            why = await self._use(http, key.provider, token.access_token.reveal())
            if why == "expired":
                self.tally.expired.append(RejectedToken(account, handed_out_s, time.monotonic()))
            if why == "revoked":  # as any caller does: a 401 asks for another token
                await self._fairlead.refresh(key.tenant, key.provider, key.account)
        except ReauthRequiredError:
            return "reauth"
        except FairleadError as error:
            if not error.retryable:
                self.tally.surprises[error.code] += 1
            return "later" if error.retryable else "failed"
        except (aiohttp.ClientError, TimeoutError):  # the use of a token failed, not fairlead
            return "failed"
        return why

    async def _use(self, http: aiohttp.ClientSession, provider: str, access_token: str) -> str:
        """Call the provider's API with the token: ok, or what it says is wrong with it."""
        headers = {"Authorization": f"Bearer {access_token}"}
        async with http.get(f"{self._url}/{provider}/resource", headers=headers) as response:
            await response.read()
            found = _WHY.search(response.headers.get("WWW-Authenticate", ""))
        return "ok" if response.status == 200 else found[1] if found else str(response.status)


def expired_when_served(rejected: list[RejectedToken], ledger: Ledger) -> list[RejectedToken]:
    """Those that had expired before they were handed out.

    The ledger tells how late a token was at its use; what was late by less than it took us to use it was
    alive when fairlead gave it.
    """
    late = [entry for entry in ledger.of("resource") if entry.fields["why"] == "expired"]
    return [each for each in rejected if any(_is_it(each, entry.t, entry.fields) for entry in late)]


def _is_it(one: RejectedToken, used_s: float, fields: dict[str, object]) -> bool:
    late_s = fields.get("late_s")
    return (
        fields.get("connection") == one.account.name
        and fields.get("provider") == one.account.key.provider
        and one.handed_out_s <= used_s <= one.answered_s
        and isinstance(late_s, int | float)
        and used_s - late_s < one.handed_out_s
    )
