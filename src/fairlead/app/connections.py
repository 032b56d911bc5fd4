"""`fl.connections`: the accounts of your tenants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fairlead._core.secret import Secret
from fairlead.assembly.runtime import Runtime
from fairlead.engine.ports import ConnectionKey
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.engine.tokens.connection_view import ConnectionView
from fairlead.errors import InvalidInputError
from fairlead.policy.reasons.token_reasons import REVOKED


class ConnectionsAPI:
    """``fl.connections``: connect accounts and look after them."""

    def __init__(self, runtime: Callable[[], Runtime]) -> None:
        self._runtime = runtime

    async def upsert(  # noqa: PLR0913 - a user names what they have
        self,
        tenant: str,
        provider: str,
        *,
        account: str = "default",
        variant: str | None = None,
        endpoint: Mapping[str, str] | None = None,
        account_id: str | None = None,
        access_token: str | None = None,
        refresh_token: str | None = None,
        api_key: str | None = None,
        expires_in_s: float | None = None,
        scope: str | None = None,
        client_id: str = "",
        client_secret: str | None = None,
        private_key: str | None = None,
        key_id: str | None = None,
        settings: Mapping[str, Any] | None = None,
        actor: str = "api",
    ) -> ConnectionView:
        """Connect an account, or reconnect it in place with a new grant (its id stays).

        Raises InvalidInputError, ProviderNotFoundError, or InvalidConfigError for impossible *settings*,
        before anything is
        changed.
        """
        key = ConnectionKey(tenant, provider, account)
        grant = Grant(
            access_token=_secret("access_token", access_token, key),
            refresh_token=_secret("refresh_token", refresh_token, key),
            api_key=_secret("api_key", api_key, key),
            expires_in_s=expires_in_s,
            scope=scope,
            account_id=account_id,
            client_id=client_id,
            client_secret=_secret("client_secret", client_secret, key),
            private_key=_secret("private_key", private_key, key),
            key_id=key_id,
            variant=variant,
            endpoint=dict(endpoint or {}),
            settings=None if settings is None else dict(settings),
        )
        view = await self._runtime().tokens.connections.upsert(key, grant, actor=actor)
        self._runtime().reader.forget(key)
        return view

    async def configure(
        self,
        tenant: str,
        provider: str,
        account: str = "default",
        *,
        settings: Mapping[str, Any] | None = None,
        unset: Iterable[str] = (),
        actor: str = "api",
    ) -> dict[str, Any]:
        """Change *settings* of a connection and take *unset* away; gives all that it has then.

        Settings that are not named stay, and so do its grant and its tokens. Every process heeds it within 5
        s and goes on with what it has counted. Raises NotFoundError, InvalidInputError for a name in *unset*
        that is not set, or InvalidConfigError for settings that no call could be made with; then nothing is
        changed.
        """
        key = ConnectionKey(tenant, provider, account)
        connections = self._runtime().tokens.connections
        return dict((await connections.configure(key, settings or {}, unset, actor=actor)).new_settings)

    async def get(self, tenant: str, provider: str, account: str = "default") -> ConnectionView:
        """One connection; NotFoundError where there is none."""
        return await self._runtime().tokens.connections.get(ConnectionKey(tenant, provider, account))

    async def search(
        self,
        *,
        tenant: str | None = None,
        provider: str | None = None,
        state: str | None = None,
        limit: int = 1000,
    ) -> list[ConnectionView]:
        """Connections by tenant, provider and state."""
        return await self._runtime().tokens.connections.search(
            tenant=tenant, provider=provider, state=state, limit=limit
        )

    async def revoke(
        self, tenant: str, provider: str, account: str = "default", *, reason: str = "", actor: str = "api"
    ) -> bool:
        """End the grant here and, where the provider offers that, there. False if it was revoked before."""
        key = ConnectionKey(tenant, provider, account)
        news, _ = await self._runtime().tokens.accounts.revoke(
            key, actor=actor, reason=reason or REVOKED.code
        )
        return news

    async def remove(
        self, tenant: str, provider: str, account: str = "default", *, actor: str = "api"
    ) -> bool:
        """Delete the connection and its secrets here. The grant at the provider stays: revoke first."""
        key = ConnectionKey(tenant, provider, account)
        removed = await self._runtime().tokens.connections.remove(key, actor=actor)
        self._runtime().reader.forget(key)
        return removed


def _secret(name: str, text: object, key: ConnectionKey) -> Secret | None:
    if text is None or isinstance(text, str):
        return None if text is None else Secret(text)
    what = f"{name} must be a text, not {type(text).__name__}"
    raise InvalidInputError(
        what, tenant=key.tenant, provider=key.provider, hint="give the secret itself as a str"
    )
