"""Connections as their owner sees them: connect, reconnect in place, list, revoke, remove. Spec: T12, T14.

A reconnect keeps the connection's id and increments its generation, which supersedes a refresh in flight. All
values are checked before anything is sealed; an invalid one changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from fairlead._core.secret import Secret
from fairlead.engine.ports import (
    Connection,
    ConnectionKey,
    Credential,
    Json,
    Lifetime,
    NewCredential,
    SealContext,
    SettingsChange,
    connection_not_found,
)
from fairlead.engine.tokens.connection_grant import Grant, check_connection_settings, check_secrets
from fairlead.engine.tokens.connection_view import ConnectionView, view
from fairlead.engine.tokens.deps import PAYLOAD_FIELD, RefreshDeps, payload_context
from fairlead.engine.tokens.sealed_endpoints import (
    HOSTS,
    check_endpoints,
    endpoint_digest,
    endpoint_digest_of,
)
from fairlead.engine.tokens.sealed_records import CredentialSecrets, decode_secrets, encode_secrets
from fairlead.engine.tokens.secret_hosts import check_secret_host
from fairlead.engine.tokens.settle import given_lifetime
from fairlead.errors import CredentialUnreadableError, InvalidInputError, SupersededError
from fairlead.policy.providers.profile import Profile
from fairlead.policy.text.names import check_customer, check_name, check_tenant, shown
from fairlead.policy.tokens.token import TokenSet

MAX_WRITE_RACES = 5
"""How many other writers of the same connection a change may lose to before it fails."""


class Connections:
    """The connections of all tenants."""

    def __init__(self, deps: RefreshDeps) -> None:
        self._deps = deps

    async def upsert(self, key: ConnectionKey, grant: Grant, *, actor: str) -> ConnectionView:
        """Store *grant* for *key*: a new connection, or a new grant for the existing one.

        A grant that is stored already changes nothing, even if refreshed since. Errors store nothing.

        Raises:
            InvalidInputError, ProviderNotFoundError: A value of the grant, or the provider's name, is not
                valid.
            InvalidConfigError: The settings allow no call, or a host may not have the app's secret.
            SupersededError: Other processes keep writing the same connection.
        """
        profile = self.check(key, grant)
        _key = await self._deps.vault.preflight(key.tenant)
        for _ in range(MAX_WRITE_RACES):
            stored = await self._deps.store.read(key)
            if stored is None:
                check_customer(key.tenant)
            secrets = await self.reusable_secrets(stored, grant)
            settings = _settings(grant, stored, trusted=secrets is not None)
            new = self._new(key, grant, profile, stored, secrets, settings, actor)
            if stored and secrets and secrets.grant_digest == grant.digest() and _is_stored(stored, new):
                return view(stored)
            write = self._deps.store.create if stored is None else self._deps.store.replace
            if await write(new):
                return await self.get(key)
        raise self._superseded(key)

    def check(self, key: ConnectionKey, grant: Grant) -> Profile:
        """Return the profile for *grant*; raise what upsert() would raise, without a change."""
        check_tenant(key.tenant)
        check_name("provider", key.provider)
        check_name("account", key.account)
        profile = self._deps.profiles.profile(key.provider, grant.variant)
        profile.endpoint_values(grant.endpoint)
        check_secrets(key, grant, profile, self._deps.apps.app(key.provider, grant.client_id))
        if grant.settings is not None:
            check_connection_settings(key, grant.variant, grant.settings, profile, grant.settings)
        return profile

    def _new(
        self,
        key: ConnectionKey,
        grant: Grant,
        profile: Profile,
        stored: Credential | None,
        reusable: CredentialSecrets | None,
        settings: Mapping[str, Json],
        actor: str,
    ) -> NewCredential:
        connection_id = stored.connection.connection_id if stored else self._deps.ids.uuid7()
        generation = stored.generation + 1 if stored else 1
        endpoint = profile.endpoint_values(grant.endpoint)
        account_id = self._account_id(profile, grant, endpoint)
        self._check_same_account(key, grant, stored, account_id)
        client_id = grant.client_id or self._deps.apps.app(key.provider, "").client_id
        carried = reusable if stored and _keeps_app(stored, grant) else None
        lifetime_s = grant.lifetime_s or (carried.tokens.lifetime_s if carried else None)
        secrets = CredentialSecrets(
            tokens=TokenSet(
                access_token=grant.api_key or grant.access_token or Secret(""),
                refresh_token=grant.refresh_token,
                token_type=grant.token_type,
                scope=grant.scope,
                account_id=account_id,
                lifetime_s=lifetime_s,
            ),
            client_secret=grant.client_secret or (carried.client_secret if carried else None),
            private_key=grant.private_key or (carried.private_key if carried else None),
            key_id=grant.key_id or (carried.key_id if carried else None),
            endpoint_digest=endpoint_digest(grant.variant, client_id, endpoint, settings),
            grant_digest=grant.digest(),
        )
        context = SealContext(key.tenant, connection_id, key.provider, PAYLOAD_FIELD, generation)
        refreshable = profile.is_refreshable and (
            profile.strategy == "assertion" or grant.refresh_token is not None
        )
        if refreshable:
            app = self._deps.apps.app(key.provider, grant.client_id)
            check_secret_host(profile, "token", endpoint, app, key, secrets)
        return NewCredential(
            connection_id=connection_id,
            key=key,
            variant=grant.variant,
            account_id=account_id,
            client_id=client_id,
            endpoint=endpoint,
            settings=settings,
            sealed=self._deps.vault.seal(context, encode_secrets(secrets)),
            generation=generation,
            refreshable=refreshable,
            lifetime=self._lifetime(profile, connection_id, grant, lifetime_s),
            actor=actor,
            audit_id=self._deps.ids.uuid7(),
            state=grant.state,
            state_reason=grant.state_reason,
        )

    async def reusable_secrets(self, stored: Credential | None, grant: Grant) -> CredentialSecrets | None:
        """Return the stored secrets if *grant* keeps the app or the hosts, and if they can be trusted."""
        if stored is None or not (_keeps_app(stored, grant) or HOSTS in stored.connection.settings):
            return None
        try:
            secrets = await self._open(stored)
            check_endpoints(stored, secrets)
            return secrets
        except CredentialUnreadableError:
            return None  # so that a reconnect repairs a damaged record

    async def _open(self, credential: Credential) -> CredentialSecrets:
        context = payload_context(credential, credential.generation)
        return decode_secrets(await self._deps.vault.open(context, credential.sealed))

    def _check_same_account(
        self, key: ConnectionKey, grant: Grant, stored: Credential | None, account_id: str | None
    ) -> None:
        stored_id = stored.connection.account_id if stored else None
        if None in (stored_id, account_id) or stored_id == account_id or grant.other_account:
            return
        raise InvalidInputError(
            "this grant is for another account than the one that is connected",
            tenant=key.tenant,
            provider=key.provider,
            hint="give the other account its own name (account=...), or remove this connection first",
        )

    def _lifetime(
        self, profile: Profile, connection_id: UUID, grant: Grant, life_s: float | None
    ) -> Lifetime:
        token = None if grant.expires_in_s == 0 else grant.access_token
        lifetime = given_lifetime(profile, connection_id, token, grant.expires_in_s, life_s)
        if grant.state == "active":
            return lifetime
        # Scans return an unknown connection once its access token has expired, and the others never.
        return replace(lifetime, due_in_s=lifetime.expires_in_s if grant.state == "unknown" else None)

    def _account_id(self, profile: Profile, grant: Grant, endpoint: Mapping[str, str]) -> str | None:
        if profile.account.param is not None and profile.account.param in endpoint:
            return profile.canonical_account(endpoint[profile.account.param])
        return profile.canonical_account(grant.account_id) if grant.account_id else None

    async def change(
        self, key: ConnectionKey, settings: Mapping[str, Json], unset: Iterable[str] = ()
    ) -> SettingsChange:
        """Return the change that configure() would make, checked and not stored."""
        return self._changed(await self._read(key), settings, unset)

    def _changed(
        self, credential: Credential, settings: Mapping[str, Json], unset: Iterable[str]
    ) -> SettingsChange:
        connection, key = credential.connection, credential.connection.key
        missing = sorted(set(unset) - connection.settings.keys())
        if missing:
            names = ", ".join(sorted(connection.settings)) or "none"
            raise InvalidInputError(
                f"the connection has no setting {shown(missing[0])}",
                tenant=key.tenant,
                provider=key.provider,
                hint=f"it has: {names}",
            )
        remaining = {name: value for name, value in connection.settings.items() if name not in set(unset)}
        new_settings = {**remaining, **settings}
        profile = self._deps.profiles.profile(key.provider, connection.variant)
        check_connection_settings(key, connection.variant, new_settings, profile, settings)
        return SettingsChange(connection, new_settings)

    async def configure(
        self, key: ConnectionKey, settings: Mapping[str, Json], unset: Iterable[str] = (), *, actor: str
    ) -> SettingsChange:
        """Add or replace *settings* of the connection and drop those in *unset*; its grant stays.

        Raises:
            NotFoundError: There is no such connection.
            InvalidInputError: *unset* names a setting that the connection does not have.
            InvalidConfigError: No call could be made with the new settings.
            CredentialUnreadableError: The hosts change, and the sealed record cannot be trusted.
            SupersededError: Other processes keep writing the same connection.
        """
        unset = tuple(unset)
        for _ in range(MAX_WRITE_RACES):
            credential = await self._read(key)
            change = await self._resealed(credential, self._changed(credential, settings, unset))
            audit_id = self._deps.ids.uuid7()
            if not change.has_changes or await self._deps.store.configure(
                change, actor=actor, audit_id=audit_id
            ):
                return change
        raise self._superseded(key)

    async def _resealed(self, credential: Credential, change: SettingsChange) -> SettingsChange:
        """Return *change* with the secrets sealed for the new hosts, if the hosts change."""
        connection = credential.connection
        if change.new_settings.get(HOSTS) == connection.settings.get(HOSTS):
            return change
        _key = await self._deps.vault.preflight(connection.key.tenant)
        digest = endpoint_digest_of(replace(connection, settings=change.new_settings))
        secrets = await self._open(credential)
        if secrets.endpoint_digest == digest:
            return change  # the stored hosts were changed without resealing, and are now set back
        check_endpoints(credential, secrets)
        context = payload_context(credential, credential.generation)
        sealed = self._deps.vault.seal(context, encode_secrets(replace(secrets, endpoint_digest=digest)))
        return replace(change, expected_sealed=credential.sealed, sealed=sealed)

    async def find(self, key: ConnectionKey) -> Connection | None:
        """Return the part of a connection that rarely changes; None if there is none."""
        credential = await self._deps.store.read(key)
        return None if credential is None else credential.connection

    async def get(self, key: ConnectionKey) -> ConnectionView:
        """Return the connection; raise NotFoundError if there is none."""
        return view(await self._read(key))

    async def search(
        self,
        *,
        tenant: str | None = None,
        provider: str | None = None,
        state: str | None = None,
        limit: int = 1000,
    ) -> list[ConnectionView]:
        """Return connections by tenant, provider and state, sorted by name."""
        credentials = await self._deps.store.search(
            tenant=tenant, provider=provider, state=state, limit=limit
        )
        return [view(credential) for credential in credentials]

    async def revoke(self, key: ConnectionKey, *, actor: str, reason: str) -> bool:
        """Stop refreshing and serving a connection; its row stays. Return False if it was revoked before."""
        credential = await self._read(key)
        return await self._deps.store.revoke(
            credential.connection.connection_id,
            key.tenant,
            actor=actor,
            reason=reason,
            audit_id=self._deps.ids.uuid7(),
        )

    async def remove(self, key: ConnectionKey, *, actor: str) -> bool:
        """Delete the connection and its secrets; return False if another process did."""
        credential = await self._read(key)
        return await self._deps.store.remove(
            credential.connection.connection_id, key.tenant, actor=actor, audit_id=self._deps.ids.uuid7()
        )

    async def _read(self, key: ConnectionKey) -> Credential:
        credential = await self._deps.store.read(key)
        if credential is None:
            raise connection_not_found(key)
        return credential

    def _superseded(self, key: ConnectionKey) -> SupersededError:
        return SupersededError("others are writing this connection", tenant=key.tenant, provider=key.provider)


def _keeps_app(stored: Credential, grant: Grant) -> bool:
    """Return whether a reconnect uses the same client, and so keeps the connection's own app."""
    return grant.client_id in ("", stored.connection.client_id)


def _is_stored(stored: Credential, new: NewCredential) -> bool:
    """Return whether all of *new* except its secrets is stored already."""
    connection = stored.connection
    return (
        stored.state == new.state == "active"
        and new.account_id in (None, connection.account_id)
        and (new.variant, new.client_id, dict(new.endpoint), dict(new.settings))
        == (
            connection.variant,
            connection.client_id,
            dict(connection.endpoint),
            dict(connection.settings),
        )
    )


def _settings(grant: Grant, stored: Credential | None, *, trusted: bool) -> Mapping[str, Json]:
    """Return the settings of a new credential; untrusted hosts are dropped."""
    if grant.settings is not None:
        return grant.settings
    settings = stored.connection.settings if stored else {}
    return {name: value for name, value in settings.items() if trusted or name != HOSTS}
