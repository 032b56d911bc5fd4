"""The token endpoint without its server: whose token is this, what becomes of it, how to say so."""

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
    """What the endpoint decided: the answer, what became of the tokens (None: nothing), and whether
    the tokens that were granted stand in the answer."""

    answer: WireResponse
    outcome: RefreshGranted | RefreshRefused | None = None
    whole: bool = True


class TokenEndpoint:
    """Decides about tokens; *issuer_url* is the server's base URL, once it has one."""

    def __init__(self, world: IssuerState, codes: AuthorizationCodes) -> None:
        self._world = world
        self._codes = codes
        self.issuer_url = ""

    # ---- arrival: nothing changes ----------------------------------------------------------------

    def recognise(self, visit: TokenRequestInfo) -> None:
        """Find whose token *visit* presents."""
        families = self._world.families
        if visit.endpoint == "revoke":
            text = visit.form.get("token", "")
            access = families.access(text)
            generation = families.find(text) if access is None else access.family.current
        elif visit.grant_type in _ASSERTIVE:
            generation = self._by_assertion(visit)
        else:
            generation = families.find(visit.form.get("refresh_token", ""))
        if generation is not None and generation.family.provider == visit.provider:
            visit.generation = generation
            visit.connection = generation.family.connection

    def _by_assertion(self, visit: TokenRequestInfo) -> Generation | None:
        names: list[object] = [visit.client_id]
        if visit.assertion:
            try:
                claims = assertion.claims_of(visit.assertion)
            except assertion.InvalidAssertionError:
                return None
            names = [claims.get("sub"), claims.get("iss"), visit.client_id]
        visit.speaker = self._world.speaker(visit.provider, *names)
        if visit.speaker is None:
            return None
        family = self._world.families.family(visit.provider, visit.speaker.connection)
        return None if family is None else family.current

    # ---- decision --------------------------------------------------------------------------------

    def refuse_client(self, visit: TokenRequestInfo) -> WireResponse | None:
        """invalid_client, before any token is looked at; None when the client is in order."""
        clients = self._world.provider(visit.provider).clients
        in_order = (
            not clients
            or clients.get(visit.client_id or "") == visit.client_secret
            or bool(visit.assertion)  # its signature stands for the secret
        )
        if in_order and visit.client_id not in self._world.invalid_clients:
            return None
        return QUIRKS["invalid_client"].instead(0.0)

    def process(self, visit: TokenRequestInfo, quirk: Quirk | None) -> TokenDecision:
        """Present the token; from here on the families have changed."""
        provider = self._world.provider(visit.provider)
        if visit.grant_type == "refresh_token":
            return self._refresh(visit, provider, quirk)
        if visit.grant_type in _ASSERTIVE:
            return self._assert(visit, provider, quirk)
        if visit.grant_type == "authorization_code":
            return self._exchange(visit, provider)
        return _error(provider, "unsupported_grant_type", "This grant type is not supported", quirk)

    def revoke(self, visit: TokenRequestInfo) -> WireResponse:
        """RFC 7009: the family of this token dies; an unknown token is answered alike."""
        if visit.generation is not None:
            self._world.revoke_family(visit.generation.family, "revoke endpoint")
        return WireResponse(200, b"{}")

    def _refresh(
        self, visit: TokenRequestInfo, provider: ProviderConfig, quirk: Quirk | None
    ) -> TokenDecision:
        if visit.generation is None:
            return _refused(provider, RefreshRefused("unknown"), quirk)
        outcome = self._world.families.refresh(
            visit.generation,
            now=self._world.clock.monotonic(),
            ttl_s=self._world.life_s(provider),
            wish=NO_EFFECT if quirk is None else quirk.wish,
        )
        if isinstance(outcome, RefreshRefused):
            return _refused(provider, outcome, quirk)
        return TokenDecision(self._granted(visit, provider, outcome, quirk), outcome)

    def _granted(
        self, visit: TokenRequestInfo, provider: ProviderConfig, granted: RefreshGranted, quirk: Quirk | None
    ) -> WireResponse:
        access = granted.access
        left_s = access.life_s
        if granted.kind == "unchanged":
            left_s = int(max(0.0, access.expires_at - self._world.clock.monotonic()))
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
        fields = quirk.spoil(fields, visit.form.get("refresh_token", ""))
        if quirk.encoding == "form":
            return WireResponse(200, to_form(fields), "application/x-www-form-urlencoded")
        return WireResponse(200, to_json(fields))

    def _assert(
        self, visit: TokenRequestInfo, provider: ProviderConfig, quirk: Quirk | None
    ) -> TokenDecision:
        code, status = ("invalid_client", 401)
        if visit.grant_type == assertion.BEARER_GRANT:
            code, status = ("invalid_grant", 400)
        if visit.speaker is None or not visit.assertion:
            return _error(provider, code, "there is no assertion of a known client", quirk, status)
        audience = provider.audience or f"{self.issuer_url}/{visit.provider}/token"
        try:
            assertion.check(visit.assertion, visit.speaker, audiences=[audience], wall_s=time.time())
        except assertion.InvalidAssertionError as refusal:
            return _error(provider, code, str(refusal), quirk, status)
        return self._refresh(visit, provider, quirk)

    def _exchange(self, visit: TokenRequestInfo, provider: ProviderConfig) -> TokenDecision:
        try:
            wanted = self._codes.redeem(visit.provider, visit.form, visit.client_id)
        except InvalidCodeError as refusal:
            return _error(provider, "invalid_grant", str(refusal), None)
        grant = self._world.register(wanted, "authorized")
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
    reply = _error(provider, dialect.error, dialect.description, quirk, dialect.status)
    return TokenDecision(reply.answer, refusal)


def _error(
    provider: ProviderConfig, code: str, description: str, quirk: Quirk | None, status: int = 400
) -> TokenDecision:
    wording = "error_description" if quirk is None else quirk.wording
    return TokenDecision(WireResponse(status, error_body(provider.wording, code, description, wording)))
