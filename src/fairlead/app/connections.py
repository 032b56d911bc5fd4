"""`fl.connections`: add, change and remove the connections of your tenants."""

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
    """The API behind ``fl.connections``."""

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
        """Connect an account, or reconnect it with a new grant; its id stays. An error changes nothing.

        Raises:
            InvalidInputError: A value is not valid.
            ProviderNotFoundError: There is no such provider.
            InvalidConfigError: *settings* are not valid.
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
        """Change settings of a connection, and return all that it has afterwards. An error changes nothing.

        Other settings stay, and so do its grant and its tokens. Every process applies the change within 5 s,
        and its limits continue with what they have counted.

        Args:
            settings: The settings to set.
            unset: The names of settings to remove.

        Raises:
            NotFoundError: There is no such connection.
            InvalidInputError: A name in *unset* is not set.
            InvalidConfigError: No call could be made with the settings.
        """
        key = ConnectionKey(tenant, provider, account)
        connections = self._runtime().tokens.connections
        return dict((await connections.configure(key, settings or {}, unset, actor=actor)).new_settings)

    async def get(self, tenant: str, provider: str, account: str = "default") -> ConnectionView:
        """Return a connection. Raise NotFoundError if there is none."""
        return await self._runtime().tokens.connections.get(ConnectionKey(tenant, provider, account))

    async def search(
        self,
        *,
        tenant: str | None = None,
        provider: str | None = None,
        state: str | None = None,
        limit: int = 1000,
    ) -> list[ConnectionView]:
        """Return at most *limit* connections, by tenant, provider and state."""
        return await self._runtime().tokens.connections.search(
            tenant=tenant, provider=provider, state=state, limit=limit
        )

    async def revoke(
        self, tenant: str, provider: str, account: str = "default", *, reason: str = "", actor: str = "api"
    ) -> bool:
        """End the grant here and, if the provider offers that, there. Return False if it was revoked before."""
        key = ConnectionKey(tenant, provider, account)
        is_new, _ = await self._runtime().tokens.accounts.revoke(
            key, actor=actor, reason=reason or REVOKED.code
        )
        return is_new

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
    message = f"{name} must be a text, not {type(text).__name__}"
    raise InvalidInputError(
        message, tenant=key.tenant, provider=key.provider, hint="give the secret itself as a str"
    )
