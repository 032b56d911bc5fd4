"""The demo's callers: they request tokens all the time, and use each one at once.

The issuer says whether a token was valid. fairlead must never serve a token that has expired; it cannot know that
a customer has withdrawn a grant before it asks the issuer.
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
_REASON = re.compile(r'error_description="(\w+)"')


@dataclass(frozen=True, slots=True)
class RejectedToken:
    """A token that the issuer called expired, with instants of the monotonic clock that all processes share."""

    account: DemoAccount
    served_mono: float
    rejected_mono: float


@dataclass(slots=True)
class CallTally:
    """The results of the callers.

    Attributes:
        outcomes: ok, later (refused for now), reauth, failed, or the issuer's error.
        expired: Tokens that the issuer called expired.
        surprises: Errors of fairlead that no provider explains, by code.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    expired: list[RejectedToken] = field(default_factory=list)
    surprises: Counter[str] = field(default_factory=Counter)

    @property
    def calls(self) -> int:
        """How often a token was requested."""
        return self.outcomes.total()


class Callers:
    """Callers that run until cancelled, and count their results in *tally*."""

    def __init__(self, fairlead: Fairlead, issuer_url: str, seed: int) -> None:
        self.tally = CallTally()
        self._fairlead = fairlead
        self._url = issuer_url
        self._draw = Random(f"{seed}:calls")  # noqa: S311 - no secret

    async def run(self) -> None:
        """Run several callers at once."""
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
            served_mono = time.monotonic()
            why = await self._use(http, key.provider, token.access_token.reveal())
            if why == "expired":
                self.tally.expired.append(RejectedToken(account, served_mono, time.monotonic()))
            if why == "revoked":  # as any caller does after a 401
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
        """Call the provider's API with the token; return "ok", or the reason of its 401."""
        headers = {"Authorization": f"Bearer {access_token}"}
        async with http.get(f"{self._url}/{provider}/resource", headers=headers) as response:
            await response.read()
            reason = _REASON.search(response.headers.get("WWW-Authenticate", ""))
        return "ok" if response.status == 200 else reason[1] if reason else str(response.status)


def expired_when_served(rejected: list[RejectedToken], ledger: Ledger) -> list[RejectedToken]:
    """Return those tokens of *rejected* that had expired before fairlead served them.

    The ledger has how long a token was expired at its use. If that is less than the time since it was served, it
    was valid when fairlead served it.
    """
    late = [entry for entry in ledger.of("resource") if entry.fields["why"] == "expired"]
    return [token for token in rejected if any(_was_expired(token, entry.t, entry.fields) for entry in late)]


def _was_expired(token: RejectedToken, used_mono: float, fields: dict[str, object]) -> bool:
    late_s = fields.get("late_s")
    return (
        fields.get("connection") == token.account.name
        and fields.get("provider") == token.account.key.provider
        and token.served_mono <= used_mono <= token.rejected_mono
        and isinstance(late_s, int | float)
        and used_mono - late_s < token.served_mono
    )
