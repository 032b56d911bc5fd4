"""The tables a provider profile is made of: one pydantic model per TOML table.

Unknown keys are refused, so a typing error is an error and not a setting without effect. Every field
tells its meaning, unit and default; `fairlead providers show` and docs/reference/providers.md read them.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fairlead.policy.providers.endpoint import InvalidEndpointError, ParamKind, checked_value

Strategy = Literal["refresh_token", "assertion", "static_key"]
ClientAuth = Literal["basic", "body", "none", "client_assertion"]
ReplayPolicy = Literal[
    "stable", "until_successor_used", "grace", "strict", "strict_family_revoke", "assertion"
]

CodePlace = Literal[
    "error", "error.code", "error.type", "error.status", "status", "code", "error_code", "error_subtype"
]
"""Where error codes may stand in an answer."""

Flag = Annotated[bool, Field(strict=True)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=10 * 366 * 86_400, allow_inf_nan=False)]
"""A positive length of time, at most ten years."""
Hour = Annotated[Seconds, Field(le=3600)]
"""The same, at most an hour. (A bound given beside Seconds, as the value of a field, would be overruled.)"""
Text = Annotated[str, Field(strict=True, min_length=1, max_length=500, pattern=r"\A[^\x00-\x1f\x7f]*\z")]
Key = Annotated[str, Field(strict=True, pattern=r"\A[a-z][a-z0-9_]{0,31}\z")]
Code = Annotated[str, Field(strict=True, pattern=r"\A[!-~]{1,64}\z")]
FieldPath = Annotated[str, Field(strict=True, pattern=r"\A[A-Za-z0-9_]{1,64}(?:\.[A-Za-z0-9_]{1,64}){0,3}\z")]
HeaderName = Annotated[str, Field(strict=True, pattern=r"\A[A-Za-z][A-Za-z0-9-]{0,63}\z")]
HeaderText = Annotated[str, Field(strict=True, min_length=1, max_length=500, pattern=r"\A[ -~]*\z")]
HttpsUrl = Annotated[str, Field(strict=True, max_length=500, pattern=r"\Ahttps://[!-~]+\z")]
FormFields = Annotated[dict[Text, Text], Field(max_length=16)]


class Table(BaseModel):
    """Base of all profile tables: frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EndpointParam(Table):
    """A named part of the addresses, given once per connection (a shop, an account, a host)."""

    description: Text = Field(description="What your customer or you must enter, in plain words.")
    example: Text | None = Field(default=None, description="An example value. Default none.")
    kind: ParamKind = Field(
        default="label", description="The closed pattern the value must match as a whole. Default label."
    )
    one_of: tuple[Text, ...] = Field(default=(), description="Only these values. Default any of the kind.")
    default: Text | None = Field(default=None, description="Used when no value is given. Default none.")
    strip_suffix: Text | None = Field(
        default=None, description="Removed from the end when given: `my-shop.myshopify.com` is `my-shop`."
    )
    dash_for_underscore: Flag = Field(
        default=False, description="Write `_` as `-`: NetSuite's `123_SB1` is host `123-sb1`. Default false."
    )

    def normalise(self, value: str) -> str:
        """The one canonical form of *value*; raises InvalidEndpointError with the reason.

        ASCII is checked before lower(): the Kelvin sign would become an ordinary k.
        """
        if not value.isascii():
            raise InvalidEndpointError("has characters other than ASCII")
        if self.kind not in {"path", "segment"}:
            value = value.lower()
        if self.strip_suffix:
            value = value.removesuffix(self.strip_suffix)
        if self.dash_for_underscore:
            value = value.replace("_", "-")
        checked_value(self.kind, value)
        if self.one_of and value not in self.one_of:
            raise InvalidEndpointError(f"is not one of {', '.join(self.one_of)}")
        return value

    @model_validator(mode="after")
    def _check_own_values(self) -> Self:
        for value in (*self.one_of, *filter(None, (self.default,))):
            try:
                canonical = self.normalise(value)
            except InvalidEndpointError as error:
                raise ValueError(f"the value {value!r} {error}") from None
            if canonical != value:
                raise ValueError(f"the value {value!r} is not canonical, write {canonical!r}")
        return self


class EndpointSettings(Table):
    """Where requests go. ``{name}`` stands for a parameter."""

    token: Text | None = Field(default=None, description="Token endpoint. Required unless static_key.")
    authorize: Text | None = Field(
        default=None, description="Page where your customer consents. Default none."
    )
    issuer: Text | None = Field(
        default=None,
        description="Its name in every response to a consent (iss, RFC 9207). "
        "Default not stated: an iss must stand at the host of authorize or token.",
    )
    params: dict[Key, EndpointParam] = Field(
        default_factory=dict, description="The parameters of the addresses. Default none."
    )


class ExtraFields(Table):
    """Fields that this provider wants beside the standard ones."""

    refresh: FormFields = Field(default_factory=dict, description="Added to a refresh. Default none.")
    code: FormFields = Field(default_factory=dict, description="Added to a code exchange. Default none.")
    authorize: FormFields = Field(
        default_factory=dict, description="Added to the query of the consent page. Default none."
    )


class Scopes(Table):
    """How scopes are written."""

    separator: Literal[" ", ",", "+"] = Field(default=" ", description="Between scopes. Default a space.")
    default: tuple[Text, ...] = Field(
        default=(), description="Scopes that a consent asks for if you name none."
    )


class WindowSettings(Table):
    """When a refresh is due; what is absent follows the formulas of DEFAULTS §1."""

    lead_s: Seconds | None = Field(
        default=None,
        description="Scheduled refresh this long before expiry. "
        "Default min(30 min, max(5 min, TTL/6), TTL/2).",
    )
    buffer_s: Seconds | None = Field(
        default=None,
        description="A read inside it starts a refresh and still gets the current token. Default lead/3.",
    )
    critical_s: Seconds | None = Field(
        default=None, description="At or under it a refresh goes first. Default lead/6, at least 1 min."
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        given = [value for value in (self.critical_s, self.buffer_s, self.lead_s) if value is not None]
        if given != sorted(given):
            raise ValueError("critical_s, buffer_s and lead_s must not decrease in this order")
        return self


class ReplaySettings(Table):
    """What may be done when a refresh was sent and no answer came (reference/tokens.md §3.2)."""

    policy: ReplayPolicy = Field(description="How the provider treats a refresh token it has seen before.")
    grace_s: Seconds | None = Field(
        default=None, description="How long a refresh token is accepted after its use. Required for grace."
    )
    replay_at_expiry: Flag | None = Field(
        default=None,
        description="One replay once the access token has expired. "
        "Default true for strict, false for strict_family_revoke; no meaning for the others.",
    )

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.policy == "grace" and self.grace_s is None:
            raise ValueError("policy grace needs grace_s")
        if self.grace_s is not None and self.policy not in {"grace", "until_successor_used"}:
            raise ValueError(f"grace_s has no meaning under policy {self.policy}")
        if self.replay_at_expiry is not None and not self.policy.startswith("strict"):
            raise ValueError(f"replay_at_expiry has no meaning under policy {self.policy}")
        return self


class Rate(Table):
    """First guess at the token endpoint's rate limit."""

    limit: int = Field(default=60, strict=True, ge=1, le=1_000_000, description="Requests. Default 60.")
    per_s: Seconds = Field(default=60.0, description="In this many seconds. Default 60.")
    scope: Literal["app", "app_and_account"] = Field(
        default="app", description="Counted per client id, or per client id and account. Default app."
    )


class ErrorRules(Table):
    """What the codes of an error answer mean. Codes match exactly, phrases inside the description."""

    code_fields: tuple[CodePlace, ...] = Field(
        default=("error", "error.code", "error.type", "error.status"),
        min_length=1,
        description="Where codes stand in the response. Default error, also as an object.",
    )
    fatal: tuple[Code, ...] = Field(
        default=("invalid_grant",),
        description="Codes for a lost grant: the connection gets needs_reauth. Default invalid_grant.",
    )
    fatal_phrases: tuple[Text, ...] = Field(
        default=(), description="The same, as texts in the description, in any case. Default none."
    )
    client: tuple[Code, ...] = Field(
        default=("invalid_client",),
        description="Codes for a refused app of yours: its refreshes pause. Default invalid_client.",
    )
    config: tuple[Code, ...] = Field(
        default=("unauthorized_client", "unsupported_grant_type", "invalid_scope"),
        description="Codes for wrong settings of yours. Default the three of RFC 6749.",
    )
    permission: tuple[Code, ...] = Field(
        default=("access_denied", "insufficient_scope"), description="Codes for a missing permission."
    )
    request: tuple[Code, ...] = Field(
        default=("invalid_request",), description="Codes for a malformed request. Default invalid_request."
    )
    retryable: tuple[Code, ...] = Field(
        default=("temporarily_unavailable", "server_error"),
        description="Codes for a request that was not processed, whatever the status; it is retried.",
    )
    rate_limited: tuple[Code, ...] = Field(
        default=(), description="Those of retryable that mean a limit. Default none."
    )
    ambiguous: tuple[Code, ...] = Field(
        default=("server_error",),
        description="Those of retryable after which, on a 5xx, the request may have been processed. "
        "Default server_error.",
    )
    gone_statuses: tuple[Annotated[int, Field(strict=True, ge=400, le=499)], ...] = Field(
        default=(), description="Statuses that mean the account no longer exists. Default none."
    )

    @model_validator(mode="after")
    def _check_lists(self) -> Self:
        both = sorted({*self.retryable} & {*self.fatal, *self.client, *self.config, *self.permission})
        if both:
            raise ValueError(f"{both[0]} stands in retryable and in a list of permanent codes")
        stray = sorted(({*self.rate_limited} | {*self.ambiguous}) - {*self.retryable})
        if stray:
            raise ValueError(f"{stray[0]} stands in rate_limited or ambiguous but not in retryable")
        return self


class RefreshTokenFacts(Table):
    """How long refresh tokens live."""

    issued: Flag = Field(default=True, description="Whether grants come with one. Default true.")
    idle_s: Seconds | None = Field(
        default=None, description="Dies when unused this long; each refresh starts anew. Default unknown."
    )
    hard_s: Seconds | None = Field(
        default=None, description="Dies this long after the consent, used or not. Default unknown."
    )
    expires_in_field: FieldPath | None = Field(
        default=None, description="Field of the token response with its remaining seconds. Default none."
    )


class AccountSettings(Table):
    """How the provider's account of a connection is known."""

    param: Key | None = Field(default=None, description="The endpoint parameter that is the account.")
    field: FieldPath | None = Field(
        default=None, description="Field of the token response that names the account."
    )
    url_segment: int | None = Field(
        default=None, strict=True, ge=0, le=9,
        description="The field holds a URL; the account is this segment of its path, from 0.",
    )  # fmt: skip
    callback_param: Text | None = Field(
        default=None, description="Query parameter of the consent callback that names the account."
    )
    lower: Flag = Field(default=False, description="Upper and lower case are the same. Default false.")

    @model_validator(mode="after")
    def _check_segment(self) -> Self:
        if self.url_segment is not None and self.field is None:
            raise ValueError("url_segment needs field")
        return self


class AssertionFacts(Table):
    """How the signed JWT of the assertion strategy is built (RFC 7523)."""

    sent_as: Literal["client_assertion", "grant"] = Field(
        description="client_assertion: authenticates client_credentials; grant: is the grant itself."
    )
    alg: Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"] = Field(
        description="Signature algorithm; your key must fit."
    )
    audience: Text = Field(
        default="token_endpoint", description="The claim aud: token_endpoint, or a fixed text."
    )
    subject: Literal["none", "client_id", "configured"] = Field(
        default="none", description="The claim sub: left out, the client id, or the connection's setting."
    )
    scope_claim: Literal["none", "list", "text"] = Field(
        default="none", description="The claim scope: left out, a list, or one text. Default none."
    )
    jti: Flag = Field(default=True, description="Whether each assertion has an id of its own. Default true.")
    lifetime_s: int = Field(
        default=300, strict=True, ge=10, le=3_600, description="exp - iat of an assertion. Default 300."
    )


class CredentialHeader(Table):
    """How an API call carries the token or key."""

    name: HeaderName = Field(default="Authorization", description="Header name. Default Authorization.")
    format: HeaderText = Field(
        default="Bearer {token}", description="Its value; {token} stands for the secret. Default Bearer."
    )
    fixed: dict[HeaderName, HeaderText] = Field(
        default_factory=dict, description="Headers that each call needs besides. Default none."
    )

    @model_validator(mode="after")
    def _check_format(self) -> Self:
        if re.findall(r"\{token\}|[{}]", self.format) != ["{token}"]:
            raise ValueError("format must hold {token} once and no other brace")
        return self


class Revoke(Table):
    """How a grant is ended at the provider."""

    url: Text = Field(description="URL; you can use endpoint parameters, {client_id} and {account_id} in it.")
    method: Literal["POST", "DELETE"] = Field(default="POST", description="HTTP method. Default POST.")
    authenticates: Literal["client", "token", "nothing"] = Field(
        default="client",
        description="client: as at the token endpoint; token: the access token in its header.",
    )
    sends: Literal["refresh_token", "access_token", "nothing"] = Field(
        default="refresh_token", description="The form field `token`. Default the refresh token."
    )


class Probe(Table):
    """A harmless request that shows whether the credential works."""

    url: Text = Field(description="URL; you can use endpoint parameters in it.")
    method: Literal["GET", "POST"] = Field(default="GET", description="HTTP method. Default GET.")
    json_body: Text | None = Field(default=None, description="Body of a POST. Default none.")


def _unverified_form(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"[a-z0-9_.]{1,100}: [^\x00-\x1f]{3,400}", value):
        raise ValueError("write `path.of.the.field: what is not verified`")
    return value


Unverified = Annotated[str, Field(strict=True), BeforeValidator(_unverified_form)]
