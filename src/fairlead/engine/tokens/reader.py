"""Returns tokens to callers: from memory, with a refresh in the background, or after a refresh.

    valid, outside the buffer    served, for a few seconds from memory; read again in the background if in use
    valid, inside the buffer     served, and a refresh starts in the background
    expired                      refreshed first
    valid, no database           served from memory for five minutes

An expired token is never returned. A connection that needs re-authorisation still serves its token until that
expires: the lead is the time in which a person can act. Spec: T2, T6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairlead.engine.base.background_refresh import BackgroundRefresh
from fairlead.engine.base.database_outage import MAX_STALE_S, UNRESPONSIVE_AFTER_S, DatabaseOutage
from fairlead.engine.ports import CONNECT_HINT, ConnectionKey, Credential, connection_not_found
from fairlead.engine.tokens.coordinator import Coordinator
from fairlead.engine.tokens.deps import FreshToken, RefreshDeps, error_of, profile_of
from fairlead.engine.tokens.settle import Settler
from fairlead.errors import DependencyUnavailableError, NotFoundError, ReauthRequiredError
from fairlead.events import ServedStale
from fairlead.policy.text.names import nearest, shown
from fairlead.policy.tokens.token import PublicToken, sanitise
from fairlead.policy.tokens.window import buffer_s

SERVE_MARGIN_S = 1.0
"""A token counts as expired this long before its expiry, so that it does not expire in transit."""
CACHE_SIZE = 100_000
MAX_NAMES = 100
"""How many connections of a tenant are compared with the name of a missing one."""
AHEAD_SHARE = 0.2
"""The last share of the time in memory, in which a token in use is read again in the background."""


@dataclass(slots=True)
class _Cached:
    token: PublicToken
    ahead_mono: float  # from then on the store is read again in the background
    valid_until_mono: float  # from then on the caller waits for the store
    read_mono: float
    ends_mono: float  # from then on the token is not served at all


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
        return await self._read(key)

    async def _read(self, key: ConnectionKey) -> PublicToken:
        if self._outage.is_active() and (token := self._stale(key)) is not None:
            return token
        try:
            credential = await self._credential(key)
        except DependencyUnavailableError:
            if (token := self._stale(key)) is None:
                raise
            return token
        if credential is None:
            self._cache.pop(key, None)
            raise await self._not_found(key)
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
        return self._serve(await self._settler.open_token(credential), credential)

    def cached(self, key: ConnectionKey) -> PublicToken | None:
        """Return a valid token from memory, if there is one."""
        cached = self._cache.get(key)
        if cached is None or (now_mono := self._deps.clock.monotonic()) >= cached.valid_until_mono:
            return None
        if now_mono >= cached.ahead_mono and not self._outage.is_active():
            self._background.start(key, lambda: self._read(key))
        return cached.token

    async def refreshed_after(
        self, key: ConnectionKey, than: int | None, *, actor: str = "caller"
    ) -> PublicToken:
        """Return a token newer than generation *than*; None: any that lasts over a minute. Spec: T6."""
        credential = await self._deps.store.read(key)
        if credential is None:
            raise await self._not_found(key)
        fresh = await self._coordinator.refresh(credential.connection.connection_id, than, actor=actor)
        self.forget(key)
        return sanitise(fresh.tokens, fresh.generation)

    def forget(self, key: ConnectionKey) -> None:
        """Drop the cached token of *key*."""
        self._background.cancel(key)
        self._cache.pop(key, None)

    async def _credential(self, key: ConnectionKey) -> Credential | None:
        """Read the credential. With a usable token in memory, a database that hangs counts as unavailable."""
        needed = self._usable(key, self._deps.clock.monotonic() + UNRESPONSIVE_AFTER_S) is None
        return await self._outage.query(self._deps.store.read(key), needed=needed)

    def _usable(self, key: ConnectionKey, at_mono: float) -> _Cached | None:
        """Return the cached token if it is valid at *at_mono* and was read recently; it may be revoked."""
        cached = self._cache.get(key)
        if cached is None or at_mono >= min(cached.ends_mono, cached.read_mono + MAX_STALE_S):
            return None
        return cached

    def _stale(self, key: ConnectionKey) -> PublicToken | None:
        """Return a token from memory while the database is unavailable."""
        now_mono = self._deps.clock.monotonic()
        cached = self._usable(key, now_mono)
        if cached is None:
            return None
        cached.valid_until_mono = min(
            now_mono + self._cache_s, cached.ends_mono, cached.read_mono + MAX_STALE_S
        )
        self._deps.emit(ServedStale(key.tenant, key.provider, "token", now_mono - cached.read_mono))
        return cached.token

    def _margin_s(self, credential: Credential) -> float:
        lead_s = _lead_s(credential)
        return SERVE_MARGIN_S if lead_s is None else min(SERVE_MARGIN_S, lead_s / 5)

    def _inside_buffer(self, credential: Credential) -> bool:
        lead_s = _lead_s(credential)
        if credential.state != "active" or not credential.refreshable or lead_s is None:
            return False
        assert credential.expires_in_s is not None  # a token that never expires has no lead
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
        now_mono = self._deps.clock.monotonic()
        valid_s = min(self._cache_s, left_s)
        ahead_mono = now_mono + valid_s * (1 - AHEAD_SHARE)
        self._cache[fresh.key] = _Cached(token, ahead_mono, now_mono + valid_s, now_mono, now_mono + left_s)

    async def _not_found(self, key: ConnectionKey) -> NotFoundError:
        """Return the error for a missing connection. Its hint names the tenant's connection of a similar name."""
        credentials = await self._deps.store.search(
            tenant=key.tenant, provider=None, state=None, limit=MAX_NAMES
        )
        keys = [credential.connection.key for credential in credentials]
        provider = nearest(key.provider, {other.provider for other in keys})
        account = nearest(key.account, [other.account for other in keys if other.provider == key.provider])
        hint = CONNECT_HINT
        if account is not None:
            hint = f"did you mean the account {shown(account)}? If not, {hint}"
        elif provider is not None and provider != key.provider:
            hint = f"did you mean the provider {shown(provider)}? If not, {hint}"
        return connection_not_found(key, hint=hint)


def _lead_s(credential: Credential) -> float | None:
    """Return the lead of this token by its own lifetime; None if it never expires. Spec: T2."""
    if credential.expires_in_s is None or credential.urgent_in_s is None:
        return None
    return max(0.0, credential.expires_in_s - credential.urgent_in_s)
