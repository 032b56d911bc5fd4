"""Connect an account by the customer's consent: authorization code with PKCE (RFC 6749, 7636, 9207, 9700).

``begin`` returns the address to send the customer to and a Consent to store; ``finish`` takes the query of
the callback. A Consent can be finished once, in the process that began it. A copy of it in another process
can be finished, too; then only the provider refuses the second use of the code. A callback with another state
changes nothing; the first one with the right state ends the consent, whatever it says. Spec: T12.
"""

from __future__ import annotations

import asyncio
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from weakref import WeakSet

from fairlead._core.secret import Secret
from fairlead.engine.ports import ConnectionKey, Credential, HttpResponse, NoResponse, TokenCall
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.engine.tokens.connection_view import ConnectionView
from fairlead.engine.tokens.connections import Connections
from fairlead.engine.tokens.deps import RefreshDeps
from fairlead.engine.tokens.revocation import DEADLINE_S, nothing_to_mark
from fairlead.engine.tokens.sealed_records import CredentialSecrets
from fairlead.engine.tokens.secret_hosts import check_secret_host
from fairlead.errors import (
    DependencyUnavailableError,
    FairleadError,
    InvalidInputError,
    NotSentError,
    OutcomeUnknownError,
    RequestRejectedError,
    TransientFailureError,
)
from fairlead.events import ServiceFailed
from fairlead.policy.providers.profile import Profile
from fairlead.policy.text.names import check_customer
from fairlead.policy.tokens import outcome as outcomes
from fairlead.policy.tokens.consent import is_other_account, is_other_issuer, is_redirect
from fairlead.policy.tokens.parse import parse_token_response
from fairlead.policy.tokens.request import OAuthClient, authorize_url, code_request

STORE_FOR_S = 60.0
STORE_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Consent:
    """A consent in progress. Store it where only the person that began it can read it."""

    key: ConnectionKey
    variant: str | None
    endpoint: Mapping[str, str]
    client_id: str
    redirect_uri: str
    state: Secret
    verifier: Secret


class Consents:
    """Begins and finishes consents."""

    def __init__(self, deps: RefreshDeps, connections: Connections) -> None:
        self._deps = deps
        self._connections = connections
        self._answered: WeakSet[Consent] = WeakSet()
        self._exchanges: set[asyncio.Task[ConnectionView]] = set()

    def begin(
        self,
        key: ConnectionKey,
        *,
        redirect_uri: str,
        variant: str | None = None,
        endpoint: Mapping[str, str] | None = None,
        scopes: Sequence[str] = (),
        client_id: str = "",
    ) -> tuple[str, Consent]:
        """Return the address of the consent page, and the state to store until its callback.

        Args:
            client_id: The client of the connection that reconnects, which may have an app of its own.
                Default: the client of the settings.

        Raises:
            InvalidInputError: The provider has no such page, or a code must not be sent to *redirect_uri*.
            InvalidConfigError: The app's secret would be sent to a host that the settings do not name.
        """
        if not is_redirect(redirect_uri):
            raise InvalidInputError(
                "the redirect URI is neither https nor http on this very host",
                tenant=key.tenant,
                provider=key.provider,
                hint="give one without user and fragment, exactly as it is registered at the provider",
            )
        profile = self._deps.profiles.profile(key.provider, variant)
        app = self._deps.apps.app(key.provider, client_id)
        if not app.client_id:
            raise InvalidInputError(
                "no client_id is set for this provider", tenant=key.tenant, provider=key.provider
            )
        values = profile.endpoint_values(endpoint or {})
        check_secret_host(profile, "token", values, app, key)
        consent = Consent(
            key=key,
            variant=variant,
            endpoint=values,
            client_id=app.client_id,
            redirect_uri=redirect_uri,
            state=Secret(self._deps.ids.nonce()),
            verifier=Secret(self._deps.ids.nonce()),
        )
        challenge = (
            urlsafe_b64encode(sha256(consent.verifier.reveal().encode()).digest()).rstrip(b"=").decode()
        )
        url = authorize_url(
            profile,
            consent.endpoint,
            client_id=app.client_id,
            redirect_uri=redirect_uri,
            state=consent.state.reveal(),
            code_challenge=challenge,
            scopes=scopes,
        )
        return url, consent

    async def finish(self, consent: Consent, answer: Mapping[str, str], *, actor: str) -> ConnectionView:
        """Exchange the code in the callback's query *answer* and store the grant (a reconnect replaces one).

        Cancelling the caller does not cancel the exchange: the code is spent, and its tokens are nowhere
        else.
        """
        profile = self._deps.profiles.profile(consent.key.provider, consent.variant)
        code = self._checked_code(consent, profile, answer)
        task = asyncio.create_task(self._finish(consent, profile, code, answer, actor))
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda done: self._report_lost(consent.key, done))
            raise

    async def drain(self) -> None:
        """Wait for the exchanges under way, and cancel those that the provider or the store delays."""
        if self._exchanges:
            _, late = await asyncio.wait(self._exchanges, timeout=DEADLINE_S + STORE_FOR_S)
            for task in late:
                task.cancel()

    def _report_lost(self, key: ConnectionKey, done: asyncio.Task[ConnectionView]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            message = f"{key.tenant} {key.provider}: a consent whose caller has gone failed: {error}"
            self._deps.emit(ServiceFailed("consent", message))

    async def _finish(
        self, consent: Consent, profile: Profile, code: Secret, answer: Mapping[str, str], actor: str
    ) -> ConnectionView:
        await self._deps.vault.preflight(consent.key.tenant)  # what can fail, fails before the code is spent
        stored = await self._deps.store.read(consent.key)
        if stored is None:
            check_customer(consent.key.tenant)
        secrets = await self._secrets_of_same_app(consent, stored)
        app = self._deps.apps.app(consent.key.provider, consent.client_id)
        check_secret_host(profile, "token", consent.endpoint, app, consent.key, secrets)
        own_secret = secrets.client_secret if secrets else None
        request = code_request(
            profile,
            consent.endpoint,
            OAuthClient(app.client_id, own_secret or app.client_secret),
            code=code,
            redirect_uri=consent.redirect_uri,
            code_verifier=consent.verifier,
        )
        call = TokenCall(request.url, request.headers, request.form, DEADLINE_S, reuse_connection=False)
        response = await self._deps.transport.send(call, nothing_to_mark)
        granted = self._granted(consent, profile, response, secrets.tokens.lifetime_s if secrets else None)
        account_id = granted.account_id or answer.get(profile.account.callback_param or "")
        grant = Grant(
            access_token=granted.access_token,
            refresh_token=granted.refresh_token,
            expires_in_s=granted.expires_in_s,
            lifetime_s=granted.lifetime_s,
            token_type=granted.token_type or "Bearer",
            scope=granted.scope,
            account_id=account_id,
            client_id=consent.client_id,
            variant=consent.variant,
            endpoint=consent.endpoint,
        )
        return await self._store(consent.key, grant, actor)

    async def _secrets_of_same_app(
        self, consent: Consent, stored: Credential | None
    ) -> CredentialSecrets | None:
        """Return the stored secrets if the connection has the client and endpoint of *consent* already."""
        if stored is None:
            return None
        connection = stored.connection
        if (connection.client_id, connection.endpoint) != (consent.client_id, consent.endpoint):
            return None
        return await self._connections.reusable_secrets(stored, Grant(client_id=consent.client_id))

    async def _store(self, key: ConnectionKey, grant: Grant, actor: str) -> ConnectionView:
        """Store *grant*; retry for a while, because the code is spent and these tokens are nowhere else."""
        until_mono = self._deps.clock.monotonic() + STORE_FOR_S
        while True:
            try:
                return await self._connections.upsert(key, grant, actor=actor)
            except DependencyUnavailableError:
                if self._deps.clock.monotonic() >= until_mono:
                    raise
                await self._deps.clock.sleep(STORE_PAUSE_S)

    def _checked_code(self, consent: Consent, profile: Profile, answer: Mapping[str, str]) -> Secret:
        key, state = consent.key, answer.get("state", "").encode("utf-8", "replace")
        if not hmac.compare_digest(state, consent.state.reveal().encode()):
            raise _input(
                key, "the state of the response is not the one that was sent: it belongs to another consent"
            )
        if consent in self._answered:
            raise _input(key, "a response to this consent was received before")
        self._answered.add(consent)
        if is_other_issuer(profile, consent.endpoint, answer.get("iss")):
            raise _input(key, "the response is from another provider than the one that was asked (iss)")
        if "error" in answer:
            raise _input(key, "the customer or the provider declined")
        if is_other_account(profile, consent.endpoint, answer.get(profile.account.callback_param or "")):
            raise _input(key, "the response is for another account than the requested one")
        if not answer.get("code"):
            raise _input(key, "the response has no code")
        return Secret(answer["code"])

    def _granted(
        self,
        consent: Consent,
        profile: Profile,
        response: HttpResponse | NoResponse,
        lifetime_s: float | None,
    ) -> outcomes.Granted:
        if isinstance(response, NoResponse):
            kind = OutcomeUnknownError if response.sent else NotSentError
            raise _failed(consent.key, kind, f"no response: {response.why}")
        answer = parse_token_response(response.status, response.headers, response.body)
        outcome = outcomes.classify_token_response(profile, answer, lifetime_s=lifetime_s)
        match outcome:
            case outcomes.Granted():
                return outcome
            case outcomes.Rejected(code=code):
                raise _failed(consent.key, RequestRejectedError, f"the code was refused: {code}")
            case _:
                raise _failed(
                    consent.key, TransientFailureError, f"the token endpoint answered {response.status}"
                )


def _input(key: ConnectionKey, message: str) -> InvalidInputError:
    return InvalidInputError(
        message, tenant=key.tenant, provider=key.provider, hint="start the consent again"
    )


def _failed(key: ConnectionKey, kind: type[FairleadError], message: str) -> FairleadError:
    hint = "start the consent again: a code is good once"
    return kind(message, tenant=key.tenant, provider=key.provider, hint=hint)
