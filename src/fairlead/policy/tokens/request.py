"""The HTTP requests that get, renew and revoke a grant, as values. Spec: S29.

Credentials travel in a header or in the body, never in the address; whatever goes into a header is
checked for characters that would end it (S04). Building is pure: time and ids are arguments, and an adapter
signs assertions.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, quote_plus, urlencode

from fairlead._core.secret import Secret
from fairlead.errors import InvalidInputError
from fairlead.policy.providers.profile import Profile
from fairlead.policy.tokens.token import TokenSet

_LONGEST = 64 * 1024  # characters of a form value or header
_HEADER_TEXT = re.compile(r"[\x20-\x7e]+")
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # controls, and what UTF-8 cannot carry
_JWT_BEARER_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_JWT_BEARER_CLIENT = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """The app at the provider. A public client has no secret."""

    client_id: str
    client_secret: Secret | None = None


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """One complete request. Header names are lower case; *form* is sent url-encoded."""

    method: Literal["GET", "POST", "DELETE"]
    url: str
    headers: Mapping[str, Secret] = field(default_factory=dict)
    form: Mapping[str, Secret] = field(default_factory=dict)

    def body(self) -> bytes:
        """Return the form as application/x-www-form-urlencoded. Holds secrets in clear."""
        return urlencode({name: value.reveal() for name, value in self.form.items()}).encode()


def token_request(
    profile: Profile,
    endpoint: Mapping[str, str],
    client: OAuthClient,
    *,
    refresh_token: Secret | None = None,
    assertion: Secret | None = None,
    scopes: Sequence[str] = (),
) -> TokenRequest:
    """Return the request that renews a token, by the profile's strategy.

    Args:
        refresh_token: For the strategy refresh_token.
        assertion: The signed JWT, for the strategy assertion.

    Raises:
        InvalidInputError: One of them is missing or malformed, or the profile has no use for it.
    """
    if profile.strategy == "refresh_token" and refresh_token:
        form = _words({"grant_type": "refresh_token", **profile.extra_fields.refresh})
        return _post(profile, endpoint, client, {"refresh_token": refresh_token, **form}, assertion)
    if profile.strategy == "assertion" and assertion:
        return _post(profile, endpoint, client, _assertion_form(profile, assertion, scopes), assertion)
    needed = {"refresh_token": "a refresh token", "assertion": "a signed assertion"}.get(profile.strategy)
    raise InvalidInputError(
        f"a token request needs {needed}" if needed else "a static key is never renewed",
        provider=profile.label,
        hint="reconnect the account" if needed else "replace the key at the provider and import the new one",
    )


def code_request(
    profile: Profile,
    endpoint: Mapping[str, str],
    client: OAuthClient,
    *,
    code: Secret,
    redirect_uri: str,
    code_verifier: Secret | None,
) -> TokenRequest:
    """Return the request that exchanges an authorization code for the first token."""
    fixed = {"grant_type": "authorization_code", "redirect_uri": redirect_uri, **profile.extra_fields.code}
    proof = {} if code_verifier is None else {"code_verifier": code_verifier}
    return _post(profile, endpoint, client, {"code": code, **proof, **_words(fixed)}, None)


def authorize_url(
    profile: Profile,
    endpoint: Mapping[str, str],
    *,
    client_id: str,
    redirect_uri: str,
    state: str,
    code_challenge: str,
    scopes: Sequence[str] = (),
) -> str:
    """Return the address of the consent page, with PKCE S256. It holds no secret."""
    asked_scopes = tuple(scopes) or profile.scopes.default
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": code_challenge,
        "code_challenge_method": "S256",
        **({"scope": profile.scopes.separator.join(asked_scopes)} if asked_scopes else {}),
        **profile.extra_fields.authorize,
    }
    return f"{profile.url('authorize', endpoint)}?{urlencode(query, quote_via=quote)}"


def revoke_request(
    profile: Profile, endpoint: Mapping[str, str], client: OAuthClient, tokens: TokenSet
) -> TokenRequest:
    """Return the request that ends the grant at the provider.

    Raises:
        InvalidInputError: The profile has no such endpoint.
    """
    params = {**endpoint, "client_id": client.client_id}
    if tokens.account_id is not None:
        params["account_id"] = tokens.account_id
    url = profile.url("revoke", params)
    facts = profile.revoke
    assert facts is not None  # url() refuses otherwise
    secret = {
        "refresh_token": tokens.refresh_token or tokens.access_token,
        "access_token": tokens.access_token,
        "nothing": None,
    }[facts.sends]
    form = {"token": secret} if secret else {}
    headers: dict[str, Secret] = {}
    if facts.authenticates == "client":
        headers, form = _authenticated(profile, client, form, None)
    elif facts.authenticates == "token":
        headers = _api_headers(profile, tokens.access_token)
    return _request(profile, facts.method, url, headers, form)


def api_headers(profile: Profile, secret: Secret) -> dict[str, Secret]:
    """Return the headers that authenticate an API call to this provider with the token or key *secret*."""
    return _checked(profile, _api_headers(profile, secret))


def _api_headers(profile: Profile, secret: Secret) -> dict[str, Secret]:
    facts = profile.credential_header
    headers = _words({name.lower(): value for name, value in facts.fixed.items()})
    return {**headers, facts.name.lower(): _word(facts.format.replace("{token}", secret.reveal()))}


# ---- assertions (RFC 7523)


def assertion_claims(
    profile: Profile,
    endpoint: Mapping[str, str],
    *,
    client_id: str,
    unix_time: int,
    jti: str,
    subject: str | None = None,
    scopes: Sequence[str] = (),
    longest_s: int | None = None,
) -> dict[str, object]:
    """Return the claims of a new assertion, for an adapter to sign.

    Args:
        unix_time: The time of issue in seconds.
        jti: An id that was never used before.
        longest_s: The longest life of the assertion. Default: the profile's `assertion.lifetime_s`.
    """
    facts = profile.assertion
    if facts is None:
        raise InvalidInputError("this provider takes no assertion", provider=profile.label)
    audience = profile.url("token", endpoint) if facts.audience == "token_endpoint" else facts.audience
    claims: dict[str, object] = {
        "iss": client_id,
        "aud": audience,
        "iat": unix_time,
        "exp": unix_time + min(facts.lifetime_s, longest_s or facts.lifetime_s),
    }
    acting_for = {"none": None, "client_id": client_id, "configured": subject}[facts.subject]
    if acting_for is not None:
        claims["sub"] = acting_for
    asked_scopes = list(scopes) or list(profile.scopes.default)
    if asked_scopes and facts.scope_claim != "none":
        is_list = facts.scope_claim == "list"
        claims["scope"] = asked_scopes if is_list else profile.scopes.separator.join(asked_scopes)
    if facts.jti:
        claims["jti"] = jti
    return claims


def _assertion_form(profile: Profile, assertion: Secret, scopes: Sequence[str]) -> dict[str, Secret]:
    """Return the form of the profile's assertion grant, or of client_credentials with the scopes."""
    assert profile.assertion is not None  # the profile's own check
    if profile.assertion.sent_as == "grant":
        return {"grant_type": _word(_JWT_BEARER_GRANT), "assertion": assertion}
    form = {"grant_type": "client_credentials"}
    if scopes and profile.assertion.scope_claim == "none":
        form["scope"] = profile.scopes.separator.join(scopes)
    return _words(form)


# ---- client authentication, and the checks that all requests pass
#
# Everything stays a Secret until it is sent, because error trackers report the variables of frames that raise.


def _word(value: str) -> Secret:
    """Return *value* as a Secret that is not registered for masking: it is public, or made of a registered secret."""
    return Secret(value, remember=False)


def _words(values: Mapping[str, str]) -> dict[str, Secret]:
    return {name: _word(value) for name, value in values.items()}


def _post(
    profile: Profile,
    endpoint: Mapping[str, str],
    client: OAuthClient,
    form: Mapping[str, Secret],
    assertion: Secret | None,
) -> TokenRequest:
    """Return the authenticated POST of *form* to the profile's token endpoint."""
    headers, form = _authenticated(profile, client, form, assertion)
    return _request(profile, "POST", profile.url("token", endpoint), headers, form)


def _authenticated(
    profile: Profile, client: OAuthClient, form: Mapping[str, Secret], assertion: Secret | None
) -> tuple[dict[str, Secret], dict[str, Secret]]:
    """Return headers and form with the app's authentication, by profile.client_auth."""
    match profile.client_auth:
        case "basic":
            return {"authorization": _basic(profile, client)}, {**form}
        case "body":
            secret = _client_secret(profile, client)
            return {}, {**form, "client_id": _word(client.client_id), "client_secret": secret}
        case "client_assertion":
            if assertion is None:
                raise InvalidInputError("this provider needs a signed assertion", provider=profile.label)
            kind = _word(_JWT_BEARER_CLIENT)
            return {}, {**form, "client_assertion_type": kind, "client_assertion": assertion}
        case "none":
            # A JWT bearer grant names its issuer inside; every other public client sends its client id.
            named = form.get("grant_type") == _word(_JWT_BEARER_GRANT)
            return {}, {**form, **({} if named else {"client_id": _word(client.client_id)})}


def _client_secret(profile: Profile, client: OAuthClient) -> Secret:
    if client.client_secret is None or not client.client_secret:
        raise InvalidInputError(
            "the app's client secret is missing", provider=profile.label, hint="add it to the settings"
        )
    return _clean(profile, "client_secret", client.client_secret)


def _basic(profile: Profile, client: OAuthClient) -> Secret:
    """Return HTTP Basic credentials. Both parts are form-encoded before they are joined (RFC 6749 §2.3.1)."""
    client_id = _clean(profile, "client_id", _word(client.client_id))
    parts = (client_id, _client_secret(profile, client))
    pair = ":".join(quote_plus(part.reveal()) for part in parts)
    return _word(f"Basic {base64.b64encode(pair.encode()).decode()}")


def _request(
    profile: Profile,
    method: Literal["GET", "POST", "DELETE"],
    url: str,
    headers: Mapping[str, Secret],
    form: Mapping[str, Secret],
) -> TokenRequest:
    standard = {"accept": _word("application/json")}
    if form:
        standard["content-type"] = _word("application/x-www-form-urlencoded")
    return TokenRequest(
        method=method,
        url=url,
        headers=_checked(profile, {**standard, **headers}),
        form={name: _clean(profile, name, value) for name, value in form.items()},
    )


def _clean(profile: Profile, name: str, value: Secret) -> Secret:
    """Return *value* if it fits into a form: not too long, no control character."""
    if len(value.reveal()) > _LONGEST or _UNFIT.search(value.reveal()):
        raise _malformed(profile, name)
    return value


def _checked(profile: Profile, headers: Mapping[str, Secret]) -> dict[str, Secret]:
    """Return *headers* if each value is printable ASCII, so that none can end its header (S04)."""
    for name, value in headers.items():
        if len(value.reveal()) > _LONGEST or not _HEADER_TEXT.fullmatch(value.reveal()):
            raise _malformed(profile, name)
    return dict(headers)


def _malformed(profile: Profile, name: str) -> InvalidInputError:
    return InvalidInputError(
        f"{name} is too long or holds a line break or another control character",
        provider=profile.label,
        hint="look for a line break at the end of a copied secret",
    )
