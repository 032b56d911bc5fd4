"""Returns tokens to callers: from memory, with a refresh in the background, or after a refresh.

    valid, outside the buffer    served, from memory for a few seconds; in use, it is read again before that
    valid, inside the buffer     served, and a refresh starts in the background
    expired                      refreshed first
    valid, database away         served from memory for five minutes

An expired token is never returned. A connection that needs re-authorisation still serves its token until that
expires: the lead is the time in which a person can act. Spec: T2, T6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairlead.engine.base.background_refresh import BackgroundRefresh
from fairlead.engine.base.database_outage import MAX_STALE_S, UNRESPONSIVE_AFTER_S, DatabaseOutage
from fairlead.engine.ports import ConnectionKey, Credential
from fairlead.engine.tokens.coordinator import Coordinator
from fairlead.engine.tokens.deps import FreshToken, RefreshDeps, error_of, profile_of
from fairlead.engine.tokens.settle import Settler
from fairlead.errors import DependencyUnavailableError, NotFoundError, ReauthRequiredError
from fairlead.events import ServedStale
from fairlead.policy.tokens.token import PublicToken, sanitise
from fairlead.policy.tokens.window import buffer_s

SERVE_MARGIN_S = 1.0
"""A token with less than this left counts as expired: it would die on its way. TTL/10 for short ones."""
CACHE_SIZE = 100_000
AHEAD_SHARE = 0.2
"""Of the time for which a token is served from memory: in the last of it the next look is under way."""


@dataclass(slots=True)
class _Cached:
    token: PublicToken
    ahead_s: float  # monotonic; past it the store is read again in the background
    good_until_s: float  # past it the caller waits for the store
    read_s: float
    ends_s: float  # past it the token is not served at all


class TokenReader:
    """A source of tokens for the callers of this process."""

    def __init__(self, deps: RefreshDeps, coordinator: Coordinator, settler: Settler, cache_s: float) -> None:
        self._deps = deps
        self._coordinator = coordinator
        self._settler = settler
        self._cache_s = cache_s
        self._outage = DatabaseOutage(deps.clock)
        self._background = BackgroundRefresh()
        self._cache: dict[ConnectionKey, _Cached] = {}

    async def token(self, key: ConnectionKey) -> PublicToken:
        """Return a valid token; raise NotFoundError, ReauthRequiredError, or the error of a refresh."""
        if (token := self.cached(key)) is not None:
            return token
        return await self._looked_up(key)

    async def _looked_up(self, key: ConnectionKey) -> PublicToken:
        if self._outage.is_active() and (known := self._while_away(key)) is not None:
            return known
        try:
            credential = await self._asked(key)
        except DependencyUnavailableError:
            if (token := self._while_away(key)) is None:
                raise
            return token
        if credential is None:
            self._cache.pop(key, None)
            raise _not_found(key)
        if credential.state == "revoked":
            self._cache.pop(key, None)
            raise error_of(ReauthRequiredError, credential, "the grant was revoked")
        left_s = credential.expires_in_s
        if left_s is not None and left_s <= self._margin_s(credential):
            connection_id = credential.connection.connection_id
            fresh = await self._coordinator.refresh(connection_id, credential.generation)
            return self._serve(fresh, credential)
        if self._inside_buffer(credential):
            self._coordinator.start_background(credential.connection.connection_id, credential.generation)
        return self._serve(await self._settler.open(credential), credential)

    def cached(self, key: ConnectionKey) -> PublicToken | None:
        """Return a valid token from memory, if there is one."""
        cached = self._cache.get(key)
        if cached is None or (now_s := self._deps.clock.monotonic()) >= cached.good_until_s:
            return None
        if now_s >= cached.ahead_s and not self._outage.is_active():
            self._background.start(key, lambda: self._looked_up(key))
        return cached.token

    async def refreshed_after(
        self, key: ConnectionKey, than: int | None, *, actor: str = "caller"
    ) -> PublicToken:
        """Return a token newer than generation *than*; None: any that lasts over a minute. Spec: T6."""
        credential = await self._deps.store.read(key)
        if credential is None:
            raise _not_found(key)
        fresh = await self._coordinator.refresh(credential.connection.connection_id, than, actor=actor)
        self.forget(key)
        return sanitise(fresh.tokens, fresh.generation)

    def forget(self, key: ConnectionKey) -> None:
        """Drop what this process remembers of *key*."""
        self._background.cancel(key)
        self._cache.pop(key, None)

    async def _asked(self, key: ConnectionKey) -> Credential | None:
        """As the database has it; one that hangs counts as away where there is a token to go on with."""
        needed = self._remembered(key, self._deps.clock.monotonic() + UNRESPONSIVE_AFTER_S) is None
        return await self._outage.query(self._deps.store.read(key), needed=needed)

    def _remembered(self, key: ConnectionKey, at_s: float) -> _Cached | None:
        """What was read last, as long as it lasts, and for five minutes at most: it may have been revoked."""
        cached = self._cache.get(key)
        return None if cached is None or at_s >= min(cached.ends_s, cached.read_s + MAX_STALE_S) else cached

    def _while_away(self, key: ConnectionKey) -> PublicToken | None:
        now_s = self._deps.clock.monotonic()
        cached = self._remembered(key, now_s)
        if cached is None:
            return None
        cached.good_until_s = min(now_s + self._cache_s, cached.ends_s, cached.read_s + MAX_STALE_S)
        self._deps.emit(ServedStale(key.tenant, key.provider, "token", now_s - cached.read_s))
        return cached.token

    def _margin_s(self, credential: Credential) -> float:
        lead_s = _lead_s(credential)
        return SERVE_MARGIN_S if lead_s is None else min(SERVE_MARGIN_S, lead_s / 5)

    def _inside_buffer(self, credential: Credential) -> bool:
        lead_s = _lead_s(credential)
        if credential.state != "active" or not credential.refreshable or lead_s is None:
            return False
        assert credential.expires_in_s is not None  # a token without end has no lead
        return credential.expires_in_s <= buffer_s(profile_of(self._deps, credential).windows, lead_s)

    def _serve(self, fresh: FreshToken, credential: Credential) -> PublicToken:
        token = sanitise(fresh.tokens, fresh.generation)
        left_s = math.inf
        if fresh.expires_in_s is not None:
            left_s = fresh.expires_in_s - self._margin_s(credential)
        if min(self._cache_s, left_s) > 0 and credential.state == "active":
            self._remember(fresh, token, left_s)
        else:
            self._cache.pop(fresh.key, None)
        return token

    def _remember(self, fresh: FreshToken, token: PublicToken, left_s: float) -> None:
        if len(self._cache) >= CACHE_SIZE:
            self._cache.pop(next(iter(self._cache)))
        now_s = self._deps.clock.monotonic()
        good_s = min(self._cache_s, left_s)
        ahead_s = now_s + good_s * (1 - AHEAD_SHARE)
        self._cache[fresh.key] = _Cached(token, ahead_s, now_s + good_s, now_s, now_s + left_s)


def _lead_s(credential: Credential) -> float | None:
    """Return the lead of this token by its own lifetime; None if it never expires. Spec: T2."""
    if credential.expires_in_s is None or credential.urgent_in_s is None:
        return None
    return max(0.0, credential.expires_in_s - credential.urgent_in_s)


def _not_found(key: ConnectionKey) -> NotFoundError:
    return NotFoundError(
        f"there is no connection {key.account!r}",
        tenant=key.tenant,
        provider=key.provider,
        hint="connect the account with `fairlead connections add`",
    )
