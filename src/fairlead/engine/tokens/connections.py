"""Connections as their owner sees them: connect, reconnect in place, list, revoke, remove (T12, T14).

Reconnecting keeps the id and moves the generation, so whatever refresh was in flight has lost. Names and
endpoint parameters are checked before anything is sealed; bad input changes nothing.

Over 400 lines because all changes to a connection are read in one place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from fairlead._core.secret import Secret
from fairlead.engine.limits.limit_plans import check_settings
from fairlead.engine.ports import (
    Connection,
    ConnectionKey,
    Credential,
    CredentialState,
    Json,
    Lifetime,
    NewCredential,
    SealContext,
    SettingsChange,
)
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
from fairlead.errors import CredentialUnreadableError, InvalidInputError, NotFoundError, SupersededError
from fairlead.policy.jobs.payload import encode_args
from fairlead.policy.providers.connection_calls import call_settings_of
from fairlead.policy.providers.profile import Profile
from fairlead.policy.providers.setting_names import check_names
from fairlead.policy.text.names import check_customer, check_name, check_tenant, shown
from fairlead.policy.text.number import number_of
from fairlead.policy.tokens.parse import TOKEN_TYPE
from fairlead.policy.tokens.token import TokenSet

MAX_SECRET = 64 * 1024
REQUIRED_SECRET = {
    "static_key": "an API key",
    "refresh_token": "a refresh token",
    "assertion": "a private key",
}
_NOBODY = UUID(int=0)
WRITERS = 5
"""How often a race with another writer of the same connection is tried again."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The secrets of one connection, from a person or an import."""

    access_token: Secret | None = None
    refresh_token: Secret | None = None
    api_key: Secret | None = None
    expires_in_s: float | None = None  # None: see given_lifetime
    lifetime_s: float | None = None  # what the issuer's response stated
    token_type: str = "Bearer"
    scope: str | None = None
    account_id: str | None = None
    client_id: str = ""
    client_secret: Secret | None = None
    private_key: Secret | None = None
    key_id: str | None = None
    variant: str | None = None
    endpoint: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Json] | None = None
    """None: as they are."""
    state: CredentialState = "active"
    """What an import tells: only an active grant is served and refreshed without a question."""
    state_reason: str | None = None
    other_account: bool = False
    """Whether a reconnect may be for another account than before; default no."""


class Connections:
    """Connects accounts and looks after their lives."""

    def __init__(self, deps: RefreshDeps) -> None:
        self._deps = deps

    async def upsert(self, key: ConnectionKey, grant: Grant, *, actor: str) -> ConnectionView:
        """Store *grant* for *key*: a new connection, or a new grant for the one that is there.

        A grant that is stored already changes nothing, even if refreshed since. Errors store nothing.

        Raises:
            InvalidInputError, ProviderNotFoundError: A value of the grant, or the provider's name, is not valid.
            InvalidConfigError: The settings allow no call, or a host may not have the app's secret.
            SupersededError: Other processes keep writing the same connection.
        """
        profile = self.check(key, grant)
        _key = await self._deps.vault.preflight(key.tenant)
        for _ in range(WRITERS):
            known = await self._deps.store.read(key)
            if known is None:
                check_customer(key.tenant)
            opened = await self.opened(known, grant)
            settings = _settings(grant, known, trusted=opened is not None)
            new = self._new(key, grant, profile, known, opened, settings, actor)
            if known and opened and opened.grant_digest == _digest(grant) and _is_as_asked(known, new):
                return view(known)
            stored = await (self._deps.store.create(new) if known is None else self._deps.store.replace(new))
            if stored:
                return await self.get(key)
        raise SupersededError("others are writing this connection", tenant=key.tenant, provider=key.provider)

    def check(self, key: ConnectionKey, grant: Grant) -> Profile:
        """The profile that *grant* is good for; raises what upsert would, and changes nothing."""
        check_tenant(key.tenant)
        check_name("provider", key.provider)
        check_name("account", key.account)
        profile = self._deps.profiles.profile(key.provider, grant.variant)
        profile.endpoint_values(grant.endpoint)
        self._check_secrets(key, grant, profile)
        if grant.settings is not None:
            _check_settings(key, grant.variant, grant.settings, profile)
        return profile

    def _check_secrets(self, key: ConnectionKey, grant: Grant, profile: Profile) -> None:
        app = self._deps.apps.app(key.provider, grant.client_id)
        needed = {
            "static_key": grant.api_key or grant.access_token,
            "refresh_token": grant.refresh_token or grant.access_token,
            "assertion": grant.private_key or app.private_key,
        }[profile.strategy]
        if not needed:
            raise self._input(key, f"this provider needs {REQUIRED_SECRET[profile.strategy]}")
        for secret in (grant.access_token, grant.refresh_token, grant.api_key, grant.client_secret):
            text = secret.reveal() if secret else ""
            if len(text) > MAX_SECRET or any(ord(char) < 32 or ord(char) == 127 for char in text):
                raise self._input(key, "a secret is too long or holds a line break or control character")
        if not TOKEN_TYPE.fullmatch(grant.token_type):
            raise self._input(key, "token_type is not a word as Bearer is")
        if grant.expires_in_s is not None and not 0 <= number_of(grant.expires_in_s) < 10 * 366 * 86_400:
            raise self._input(key, "expires_in_s is not between 0 and ten years")

    def _new(
        self,
        key: ConnectionKey,
        grant: Grant,
        profile: Profile,
        known: Credential | None,
        opened: CredentialSecrets | None,
        settings: Mapping[str, Json],
        actor: str,
    ) -> NewCredential:
        connection_id = known.connection.connection_id if known else self._deps.ids.uuid7()
        generation = known.generation + 1 if known else 1
        endpoint = profile.endpoint_values(grant.endpoint)
        account_id = self._account_id(profile, grant, endpoint)
        self._check_same_account(key, grant, known, account_id)
        client_id = grant.client_id or self._deps.apps.app(key.provider, "").client_id
        carried = opened if known and _keeps_app(known, grant) else None
        lifetime_s = grant.lifetime_s or (carried.tokens.lifetime_s if carried else None)
        stored = CredentialSecrets(
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
            grant_digest=_digest(grant),
        )
        context = SealContext(key.tenant, connection_id, key.provider, PAYLOAD_FIELD, generation)
        refreshable = profile.refreshes and (
            profile.strategy == "assertion" or grant.refresh_token is not None
        )
        if refreshable:
            app = self._deps.apps.app(key.provider, grant.client_id)
            check_secret_host(profile, "token", endpoint, app, key, stored)
        return NewCredential(
            connection_id=connection_id,
            key=key,
            variant=grant.variant,
            account_id=account_id,
            client_id=client_id,
            endpoint=endpoint,
            settings=settings,
            sealed=self._deps.vault.seal(context, encode_secrets(stored)),
            generation=generation,
            refreshable=refreshable,
            lifetime=self._lifetime(profile, connection_id, grant, lifetime_s),
            actor=actor,
            audit_id=self._deps.ids.uuid7(),
            state=grant.state,
            state_reason=grant.state_reason,
        )

    async def opened(self, known: Credential | None, grant: Grant) -> CredentialSecrets | None:
        """What is stored; None where nothing is, nothing of it is asked for, or it cannot be relied on."""
        if known is None or not (_keeps_app(known, grant) or HOSTS in known.connection.settings):
            return None
        try:
            stored = await self._unchecked(known)
            check_endpoints(known, stored)
            return stored
        except CredentialUnreadableError:
            return None  # reconnecting is the way out of a damaged record

    async def _unchecked(self, credential: Credential) -> CredentialSecrets:
        context = payload_context(credential, credential.generation)
        return decode_secrets(await self._deps.vault.open(context, credential.sealed))

    def _check_same_account(
        self, key: ConnectionKey, grant: Grant, known: Credential | None, account_id: str | None
    ) -> None:
        before = known.connection.account_id if known else None
        if None in (before, account_id) or before == account_id or grant.other_account:
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
        # A scan finds an unknown connection again once its access token has expired, and the others never.
        return replace(lifetime, due_in_s=lifetime.expires_in_s if grant.state == "unknown" else None)

    def _account_id(self, profile: Profile, grant: Grant, endpoint: Mapping[str, str]) -> str | None:
        if profile.account.param is not None and profile.account.param in endpoint:
            return profile.canonical_account(endpoint[profile.account.param])
        return profile.canonical_account(grant.account_id) if grant.account_id else None

    async def change(
        self, key: ConnectionKey, settings: Mapping[str, Json], unset: Iterable[str] = ()
    ) -> SettingsChange:
        """What `configure` would do, checked; nothing is done."""
        return self._changed(await self._read(key), settings, unset)

    def _changed(
        self, credential: Credential, settings: Mapping[str, Json], unset: Iterable[str]
    ) -> SettingsChange:
        connection, key = credential.connection, credential.connection.key
        missing = sorted(set(unset) - connection.settings.keys())
        if missing:
            known = ", ".join(sorted(connection.settings)) or "none"
            raise InvalidInputError(
                f"the connection has no setting {shown(missing[0])}",
                tenant=key.tenant,
                provider=key.provider,
                hint=f"it has: {known}",
            )
        kept = {name: value for name, value in connection.settings.items() if name not in set(unset)}
        after = {**kept, **settings}
        profile = self._deps.profiles.profile(key.provider, connection.variant)
        _check_settings(key, connection.variant, after, profile, settings)
        return SettingsChange(connection, after)

    async def configure(
        self, key: ConnectionKey, settings: Mapping[str, Json], unset: Iterable[str] = (), *, actor: str
    ) -> SettingsChange:
        """Give the connection *settings* beside those that it has, and take *unset* away; its grant stays.

        Raises NotFoundError, InvalidInputError for a name in *unset* that it does not have,
        InvalidConfigError for settings
        that no call could be made with, CredentialUnreadableError for other hosts than it was sealed for where
        its record cannot be relied on, or SupersededError if others keep writing the same connection.
        """
        unset = tuple(unset)
        for _ in range(WRITERS):
            credential = await self._read(key)
            change = await self._resealed(credential, self._changed(credential, settings, unset))
            audit_id = self._deps.ids.uuid7()
            if not change.has_changes or await self._deps.store.configure(
                change, actor=actor, audit_id=audit_id
            ):
                return change
        raise SupersededError("others are writing this connection", tenant=key.tenant, provider=key.provider)

    async def _resealed(self, credential: Credential, change: SettingsChange) -> SettingsChange:
        """With the secrets sealed for the hosts that they may go to from then on."""
        connection = credential.connection
        if change.new_settings.get(HOSTS) == connection.settings.get(HOSTS):
            return change
        _key = await self._deps.vault.preflight(connection.key.tenant)
        fit, stored = (
            endpoint_digest_of(replace(connection, settings=change.new_settings)),
            await self._unchecked(credential),
        )
        if stored.endpoint_digest == fit:
            return change  # others wrote hosts without sealing them, and these are put back
        check_endpoints(credential, stored)
        context = payload_context(credential, credential.generation)
        sealed = self._deps.vault.seal(context, encode_secrets(replace(stored, endpoint_digest=fit)))
        return replace(change, expected_sealed=credential.sealed, sealed=sealed)

    async def described(self, key: ConnectionKey) -> Connection | None:
        """What rarely changes of a connection; None where there is none."""
        credential = await self._deps.store.read(key)
        return None if credential is None else credential.connection

    async def get(self, key: ConnectionKey) -> ConnectionView:
        """The connection; NotFoundError where there is none."""
        return view(await self._read(key))

    async def search(
        self,
        *,
        tenant: str | None = None,
        provider: str | None = None,
        state: str | None = None,
        limit: int = 1000,
    ) -> list[ConnectionView]:
        """Connections by tenant, provider and state, in the order of their names."""
        found = await self._deps.store.search(tenant=tenant, provider=provider, state=state, limit=limit)
        return [view(credential) for credential in found]

    async def revoke(self, key: ConnectionKey, *, actor: str, reason: str) -> bool:
        """Never refresh or serve it again; the row stays. False if it was revoked before."""
        credential = await self._read(key)
        return await self._deps.store.revoke(
            credential.connection.connection_id,
            key.tenant,
            actor=actor,
            reason=reason,
            audit_id=self._deps.ids.uuid7(),
        )

    async def remove(self, key: ConnectionKey, *, actor: str) -> bool:
        """Delete the connection and its secrets."""
        credential = await self._read(key)
        return await self._deps.store.remove(
            credential.connection.connection_id, key.tenant, actor=actor, audit_id=self._deps.ids.uuid7()
        )

    async def _read(self, key: ConnectionKey) -> Credential:
        credential = await self._deps.store.read(key)
        if credential is None:
            raise NotFoundError(
                f"there is no connection {key.account!r}", tenant=key.tenant, provider=key.provider
            )
        return credential

    def _input(self, key: ConnectionKey, what: str) -> InvalidInputError:
        return InvalidInputError(what, tenant=key.tenant, provider=key.provider)


def _check_settings(
    key: ConnectionKey,
    variant: str | None,
    settings: Mapping[str, Json],
    profile: Profile,
    given: Mapping[str, Json] | None = None,
) -> None:
    """Raise for *settings* that are too large or allow no call; *given* are the new ones among them."""
    as_stored = {  # numbers of priority classes are keys of `minimum_slots`
        name: {str(of): value for of, value in given_one.items()}
        if isinstance(given_one, dict)
        else given_one
        for name, given_one in settings.items()
    }
    encode_args(as_stored, name="settings", tenant=key.tenant)
    check_names(settings if given is None else given, tenant=key.tenant, provider=key.provider)
    check_settings(Connection(_NOBODY, key, variant, None, "", {}, settings), profile.limits)
    call_settings_of(profile, settings, tenant=key.tenant)


def _keeps_app(known: Credential, grant: Grant) -> bool:
    """Whether a reconnect goes through the same client, and so keeps an app of the connection's own."""
    return grant.client_id in ("", known.connection.client_id)


def _digest(grant: Grant) -> str:
    """Return a digest of the secrets of *grant* and of their lifetime."""
    secrets = (grant.access_token, grant.refresh_token, grant.api_key, grant.client_secret, grant.private_key)
    fields = [secret and secret.reveal() for secret in secrets]
    fields += [grant.key_id, grant.scope, grant.token_type, str(grant.expires_in_s)]
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()


def _is_as_asked(known: Credential, new: NewCredential) -> bool:
    """Return whether all of *new* except its secrets is stored already."""
    there = known.connection
    return (
        known.state == new.state == "active"
        and new.account_id in (None, there.account_id)
        and (new.variant, new.client_id, dict(new.endpoint), dict(new.settings))
        == (there.variant, there.client_id, dict(there.endpoint), dict(there.settings))
    )


def _settings(grant: Grant, known: Credential | None, *, trusted: bool) -> Mapping[str, Json]:
    """Hosts that nobody can vouch for are not taken over."""
    if grant.settings is not None:
        return grant.settings
    kept = known.connection.settings if known else {}
    return {name: value for name, value in kept.items() if trusted or name != HOSTS}
