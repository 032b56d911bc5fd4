"""The three ways to a fresh token, as profile data tells: refresh token, assertion, static key (T1).

A static key is never renewed, so it has no request; the other two differ in what the form carries.
"""

from __future__ import annotations

from dataclasses import replace

from fairlead.engine.ports import Credential, EndpointKey, EndpointLimits, TokenCall
from fairlead.engine.token.lending import check_lent
from fairlead.engine.token.parts import NOBODYS, AppCredential, RefreshSettings, Rooms
from fairlead.engine.token.stored import Stored
from fairlead.errors import ConfigInvalid, InputInvalid
from fairlead.policy.profile import Profile
from fairlead.policy.token_request import Client, assertion_claims, token_request
from fairlead.secret import Secret


class Grants:
    """Builds the token request of a connection from its profile, its secrets and its app."""

    def __init__(self, rooms: Rooms, settings: RefreshSettings) -> None:
        self._rooms = rooms
        self._settings = settings

    def app(self, credential: Credential, stored: Stored) -> AppCredential:
        """The connection's app; its own secret or key goes before the shared ones."""
        connection = credential.connection
        shared = self._rooms.apps.app(connection.key.provider, connection.client_id)
        if stored.client_secret is None and stored.private_key is None:
            return shared
        return replace(
            shared,
            client_secret=stored.client_secret or shared.client_secret,
            private_key=stored.private_key or shared.private_key,
            key_id=stored.key_id or shared.key_id,
            fingerprint=f"own:{connection.connection_id}:{credential.generation}",
            apart="" if shared.fingerprint == NOBODYS else f"own:{connection.connection_id}",
        )

    def whole_app(self, profile: Profile, credential: Credential, app: AppCredential) -> EndpointKey:
        """The app itself, whatever its limits are counted by: what a refused secret pauses (R13)."""
        whole = self._client_at(profile, credential, app)
        return EndpointKey(profile.name, f"{whole} {app.apart}" if app.apart else whole)

    def _client_at(self, profile: Profile, credential: Credential, app: AppCredential) -> str:
        """The client id, and the place where who connects chose it: what happens there concerns no other."""
        client_id, endpoint = app.client_id or "-", credential.connection.endpoint
        if profile.host_by("token", endpoint) != "choice":
            return client_id
        return f"{client_id} {profile.url('token', endpoint).partition('://')[2]}"

    def endpoint(
        self, profile: Profile, credential: Credential, app: AppCredential
    ) -> tuple[EndpointKey, EndpointLimits]:
        """Whose limits count, and the first guess at them."""
        client_id = self._client_at(profile, credential, app)
        if profile.rate.scope == "app_and_account":
            client_id = (
                f"{client_id} {credential.connection.account_id or credential.connection.connection_id}"
            )
        per_s = profile.rate.limit / profile.rate.per_s
        return EndpointKey(profile.name, client_id), EndpointLimits(
            per_s=per_s,
            burst=float(profile.rate.limit),
            breaker_failures=self._settings.breaker_failures,
            open_s=self._settings.breaker_open_s,
            open_max_s=self._settings.breaker_open_max_s,
            probe_s=self._settings.total_deadline_s,
        )

    def build(
        self, profile: Profile, credential: Credential, stored: Stored, app: AppCredential
    ) -> TokenCall:
        """The request, fully built; ConfigInvalid or InputInvalid where something is missing."""
        connection = credential.connection
        try:
            check_lent(profile, "token", connection.endpoint, app, connection.key, stored)
            request = token_request(
                profile,
                connection.endpoint,
                Client(app.client_id, app.client_secret),
                refresh_token=stored.tokens.refresh_token,
                assertion=self._assertion(profile, credential, app),
                scopes=self._scopes(profile, stored),
            )
        except InputInvalid as wrong:
            raise ConfigInvalid(
                wrong.what, tenant=connection.key.tenant, provider=connection.key.provider, hint=wrong.way_out
            ) from None
        policy = profile.replay.policy if profile.replay else "stable"
        return TokenCall(
            url=request.url,
            headers=request.headers,
            form=request.form,
            deadline_s=self._settings.request_deadline_s,
            # A kept connection may be found dead at the write: harmless where a lost answer can be repeated.
            reuse_connection=not policy.startswith("strict"),
        )

    def _assertion(self, profile: Profile, credential: Credential, app: AppCredential) -> Secret | None:
        if profile.assertion is None:
            return None
        if app.private_key is None:
            raise InputInvalid(
                "the private key that signs assertions is missing", hint="add private_key_file"
            )
        connection = credential.connection
        claims = assertion_claims(
            profile,
            connection.endpoint,
            client_id=app.client_id,
            now_s=int(credential.read_at.timestamp()),
            jti=self._rooms.ids.uuid7().hex,
            subject=connection.settings.get("subject"),
            scopes=connection.settings.get("scopes", ()),
        )
        return self._rooms.signer.sign(claims, profile.assertion.alg, app.private_key, app.key_id)

    def _scopes(self, profile: Profile, stored: Stored) -> tuple[str, ...]:
        if profile.strategy != "assertion" or not stored.tokens.scope:
            return ()
        return tuple(filter(None, stored.tokens.scope.split(profile.scopes.separator)))
