"""The token endpoint without its server: recognise the token, change its family, and word the response."""

from __future__ import annotations

import time
from dataclasses import dataclass

from fairlead.testing.issuer import assertion
from fairlead.testing.issuer.authorize import AuthorizationCodes, InvalidCodeError
from fairlead.testing.issuer.config import ProviderConfig
from fairlead.testing.issuer.dialects import error_body, to_form, to_json, token_fields
from fairlead.testing.issuer.families import NO_EFFECT, Generation, RefreshGranted, RefreshRefused
from fairlead.testing.issuer.quirks import QUIRKS, Quirk
from fairlead.testing.issuer.state import IssuerState
from fairlead.testing.issuer.token_request import TokenRequestInfo
from fairlead.testing.issuer.wire import WireResponse

_ASSERTIVE = ("client_credentials", assertion.BEARER_GRANT)


@dataclass(frozen=True, slots=True)
class TokenDecision:
    """A decision of the endpoint.

    *outcome* says what became of the tokens (None: nothing); *complete* whether the granted tokens are in the
    response.
    """

    response: WireResponse
    outcome: RefreshGranted | RefreshRefused | None = None
    complete: bool = True


class TokenEndpoint:
    """Decisions about tokens; *issuer_url* is the server's base URL once it has started."""

    def __init__(self, state: IssuerState, codes: AuthorizationCodes) -> None:
        self._state = state
        self._codes = codes
        self.issuer_url = ""

    # ---- arrival: nothing changes ----------------------------------------------------------------

    def recognise(self, token_request: TokenRequestInfo) -> None:
        """Find the connection and generation of the token in *token_request*."""
        families = self._state.families
        if token_request.endpoint == "revoke":
            text = token_request.form.get("token", "")
            access = families.access(text)
            generation = families.find(text) if access is None else access.family.current
        elif token_request.grant_type in _ASSERTIVE:
            generation = self._by_assertion(token_request)
        else:
            generation = families.find(token_request.form.get("refresh_token", ""))
        if generation is not None and generation.family.provider == token_request.provider:
            token_request.generation = generation
            token_request.connection = generation.family.connection

    def _by_assertion(self, token_request: TokenRequestInfo) -> Generation | None:
        """Return the newest generation of the client that the request names, and put the client into it."""
        names: list[object] = [token_request.client_id]
        if token_request.assertion:
            try:
                claims = assertion.claims_of(token_request.assertion)
            except assertion.InvalidAssertionError:
                return None
            names = [claims.get("sub"), claims.get("iss"), token_request.client_id]
        token_request.client = self._state.client(token_request.provider, *names)
        if token_request.client is None:
            return None
        family = self._state.families.family(token_request.provider, token_request.client.connection)
        return None if family is None else family.current

    # ---- decision --------------------------------------------------------------------------------

    def refuse_client(self, token_request: TokenRequestInfo) -> WireResponse | None:
        """Return invalid_client, before any token is read, or None when the client may continue."""
        clients = self._state.provider(token_request.provider).clients
        is_allowed = (
            not clients
            or clients.get(token_request.client_id or "") == token_request.client_secret
            or bool(token_request.assertion)  # its signature replaces the secret
        )
        if is_allowed and token_request.client_id not in self._state.invalid_clients:
            return None
        return QUIRKS["invalid_client"].replacement(0.0)

    def process(self, token_request: TokenRequestInfo, quirk: Quirk | None) -> TokenDecision:
        """Present the token, which changes its family."""
        provider = self._state.provider(token_request.provider)
        if token_request.grant_type == "refresh_token":
            return self._refresh(token_request, provider, quirk)
        if token_request.grant_type in _ASSERTIVE:
            return self._assert(token_request, provider, quirk)
        if token_request.grant_type == "authorization_code":
            return self._exchange(token_request, provider)
        return _error(provider, "unsupported_grant_type", "This grant type is not supported", quirk)

    def revoke(self, token_request: TokenRequestInfo) -> WireResponse:
        """Revoke the family of this token (RFC 7009); an unknown token gets the same response."""
        if token_request.generation is not None:
            self._state.revoke_family(token_request.generation.family, "revoke endpoint")
        return WireResponse(200, b"{}")

    def _refresh(
        self, token_request: TokenRequestInfo, provider: ProviderConfig, quirk: Quirk | None
    ) -> TokenDecision:
        if token_request.generation is None:
            return _refused(provider, RefreshRefused("unknown"), quirk)
        outcome = self._state.families.refresh(
            token_request.generation,
            now=self._state.clock.monotonic(),
            ttl_s=self._state.lifetime_s(provider),
            effect=NO_EFFECT if quirk is None else quirk.effect,
        )
        if isinstance(outcome, RefreshRefused):
            return _refused(provider, outcome, quirk)
        return TokenDecision(self._granted(token_request, provider, outcome, quirk), outcome)

    def _granted(
        self,
        token_request: TokenRequestInfo,
        provider: ProviderConfig,
        granted: RefreshGranted,
        quirk: Quirk | None,
    ) -> WireResponse:
        access = granted.access
        left_s = access.life_s
        if granted.kind == "unchanged":
            left_s = int(max(0.0, access.expires_at - self._state.clock.monotonic()))
        fields = token_fields(
            provider.wording,
            access=access.text,
            refresh=None if granted.successor is None else granted.successor.text,
            expires_in=left_s,
            scope=granted.family.scope,
            account=granted.family.account_id,
        )
        if quirk is None:
            return WireResponse(200, to_json(fields))
        fields = quirk.change(fields, token_request.form.get("refresh_token", ""))
        if quirk.encoding == "form":
            return WireResponse(200, to_form(fields), "application/x-www-form-urlencoded")
        return WireResponse(200, to_json(fields))

    def _assert(
        self, token_request: TokenRequestInfo, provider: ProviderConfig, quirk: Quirk | None
    ) -> TokenDecision:
        """Refresh by a signed assertion: check it, then answer as to a refresh token."""
        code, status = ("invalid_client", 401)
        if token_request.grant_type == assertion.BEARER_GRANT:
            code, status = ("invalid_grant", 400)
        if token_request.client is None or not token_request.assertion:
            return _error(provider, code, "there is no assertion of a known client", quirk, status)
        audience = provider.audience or f"{self.issuer_url}/{token_request.provider}/token"
        try:
            assertion.check(
                token_request.assertion, token_request.client, audiences=[audience], now_at=time.time()
            )
        except assertion.InvalidAssertionError as error:
            return _error(provider, code, str(error), quirk, status)
        return self._refresh(token_request, provider, quirk)

    def _exchange(self, token_request: TokenRequestInfo, provider: ProviderConfig) -> TokenDecision:
        """Exchange an authorization code for the first tokens of a grant."""
        try:
            connection = self._codes.redeem(
                token_request.provider, token_request.form, token_request.client_id
            )
        except InvalidCodeError as refusal:
            return _error(provider, "invalid_grant", str(refusal), None)
        grant = self._state.register(connection, "authorized")
        fields = token_fields(
            provider.wording,
            access=grant.access_token,
            refresh=grant.refresh_token or None,
            expires_in=grant.expires_in_s,
            scope=grant.scope,
            account=grant.account_id,
        )
        return TokenDecision(WireResponse(200, to_json(fields)))


def _refused(provider: ProviderConfig, refusal: RefreshRefused, quirk: Quirk | None) -> TokenDecision:
    dialect = provider.wording
    decision = _error(provider, dialect.error, dialect.description, quirk, dialect.status)
    return TokenDecision(decision.response, refusal)


def _error(
    provider: ProviderConfig, code: str, description: str, quirk: Quirk | None, status: int = 400
) -> TokenDecision:
    wording = "error_description" if quirk is None else quirk.wording
    return TokenDecision(WireResponse(status, error_body(provider.wording, code, description, wording)))
