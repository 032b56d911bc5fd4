"""Builds token requests by the provider's profile: with a refresh token, or with a signed assertion.

The third strategy, a static key, is never renewed and has no request. Spec: T1.
"""

from __future__ import annotations

from dataclasses import replace

from fairlead._core.secret import Secret
from fairlead.engine.ports import Credential, EndpointKey, EndpointLimits, PermitRequest, TokenCall
from fairlead.engine.tokens.deps import AppCredential, RefreshDeps, RefreshSettings
from fairlead.engine.tokens.sealed_records import CredentialSecrets
from fairlead.engine.tokens.secret_hosts import check_secret_host
from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.policy.providers.profile import Profile
from fairlead.policy.tokens.assertion_clock import LONGEST_RESIGNED_S
from fairlead.policy.tokens.request import OAuthClient, assertion_claims, token_request


class Grants:
    """Builds the token request of a connection from its profile, its secrets and its app."""

    def __init__(self, deps: RefreshDeps, settings: RefreshSettings) -> None:
        self._deps = deps
        self._settings = settings

    def app(self, credential: Credential, secrets: CredentialSecrets) -> AppCredential:
        """Return the app of a connection. Its own secret or key takes precedence over the shared ones."""
        connection = credential.connection
        shared = self._deps.apps.app(connection.key.provider, connection.client_id)
        if secrets.client_secret is None and secrets.private_key is None:
            return shared
        return replace(
            shared,
            client_secret=secrets.client_secret or shared.client_secret,
            private_key=secrets.private_key or shared.private_key,
            key_id=secrets.key_id or shared.key_id,
            fingerprint=None,
        )

    def permit_request(
        self, profile: Profile, credential: Credential, app: AppCredential, url: str, *, at_once: bool
    ) -> PermitRequest:
        """Return the request for a permit to send a refresh to *url*."""
        key, limits = self.endpoint(profile, credential, app, url)
        return PermitRequest(
            key,
            limits,
            credential.connection.connection_id,
            credential.generation,
            app.fingerprint,
            self._deps.session_id(),
            at_once,
        )

    def endpoint(
        self, profile: Profile, credential: Credential, app: AppCredential, url: str | None = None
    ) -> tuple[EndpointKey, EndpointLimits]:
        """Return the names under which a refresh is limited, and the first guess at the limits.

        The health of a host says nothing about another host. A host that the tenant chose also has its own
        rate.
        """
        connection = credential.connection
        client_id, host = app.client_id or "-", ""
        address = (url or profile.url("token", connection.endpoint)).partition("://")[2]
        if profile.host_control("token", connection.endpoint) == "connection_domain":
            client_id = f"{client_id} {address}"
        elif profile.has_host_per_connection("token"):
            host = address.partition("/")[0]
        by_account = profile.rate.scope == "app_and_account"
        account = (connection.account_id or str(connection.connection_id)) if by_account else ""
        return EndpointKey(profile.name, client_id, host, account), EndpointLimits(
            per_s=profile.rate.limit / profile.rate.window_s,
            burst=float(profile.rate.limit),
            breaker_failures=self._settings.breaker_failures,
            open_s=self._settings.breaker_open_s,
            open_max_s=self._settings.breaker_open_max_s,
            probe_s=self._settings.total_deadline_s,
            backoff_s=self._settings.backoff_s,
        )

    def build(
        self,
        profile: Profile,
        credential: Credential,
        secrets: CredentialSecrets,
        app: AppCredential,
        issuer_s: int | None = None,
    ) -> TokenCall:
        """Build the request.

        Args:
            issuer_s: The Unix time to sign an assertion with. Default: the database's time.

        Raises:
            InvalidConfigError, InvalidInputError: A setting or a value of the connection is missing.
        """
        connection = credential.connection
        try:
            check_secret_host(profile, "token", connection.endpoint, app, connection.key, secrets)
            request = token_request(
                profile,
                connection.endpoint,
                OAuthClient(app.client_id, app.client_secret),
                refresh_token=secrets.tokens.refresh_token,
                assertion=self._assertion(profile, credential, app, issuer_s),
                scopes=self._scopes(profile, secrets),
            )
        except InvalidInputError as wrong:
            raise InvalidConfigError(
                wrong.message, tenant=connection.key.tenant, provider=connection.key.provider, hint=wrong.hint
            ) from None
        policy = profile.replay.policy if profile.replay else "stable"
        return TokenCall(
            url=request.url,
            headers=request.headers,
            form=request.form,
            deadline_s=self._settings.request_deadline_s,
            # A reused connection may be dead, so that the request is lost: harmless if it may be repeated.
            reuse_connection=not policy.startswith("strict"),
        )

    def _assertion(
        self, profile: Profile, credential: Credential, app: AppCredential, issuer_s: int | None
    ) -> Secret | None:
        if profile.assertion is None:
            return None
        if app.private_key is None:
            raise InvalidInputError(
                "the private key that signs assertions is missing", hint="add private_key_file"
            )
        connection = credential.connection
        claims = assertion_claims(
            profile,
            connection.endpoint,
            client_id=app.client_id,
            unix_time=int(credential.read_at.timestamp()) if issuer_s is None else issuer_s,
            jti=self._deps.ids.uuid7().hex,
            subject=connection.settings.get("subject"),
            scopes=connection.settings.get("scopes", ()),
            longest_s=None if issuer_s is None else LONGEST_RESIGNED_S,
        )
        return self._deps.signer.sign(claims, profile.assertion.alg, app.private_key, app.key_id)

    def _scopes(self, profile: Profile, secrets: CredentialSecrets) -> tuple[str, ...]:
        if profile.strategy != "assertion" or not secrets.tokens.scope:
            return ()
        return tuple(filter(None, secrets.tokens.scope.split(profile.scopes.separator)))
