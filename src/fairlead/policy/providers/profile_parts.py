"""The tables of a provider profile: one pydantic model for each TOML table.

An unknown key is an error, so a misspelt one is not silently without effect. The description of each field
gives its meaning, unit and default; docs/reference/providers.md is generated from them.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fairlead.policy.providers.endpoint import InvalidEndpointError, ParamKind, checked_value

TokenStrategy = Literal["refresh_token", "assertion", "static_key"]
ClientAuth = Literal["basic", "body", "none", "client_assertion"]
ReplayPolicy = Literal[
    "stable", "until_successor_used", "grace", "strict", "strict_family_revoke", "assertion"
]

ErrorCodePath = Literal[
    "error", "error.code", "error.type", "error.status", "status", "code", "error_code", "error_subtype"
]
"""Paths in a response under which error codes may be found."""

Flag = Annotated[bool, Field(strict=True)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=10 * 366 * 86_400, allow_inf_nan=False)]
"""A positive length of time, at most ten years."""
UpToOneHour = Annotated[Seconds, Field(le=3600)]
"""A positive length of time, at most an hour. A bound in the Field of a Seconds field would be ignored."""
Text = Annotated[str, Field(strict=True, min_length=1, max_length=500, pattern=r"\A[^\x00-\x1f\x7f]*\z")]
Key = Annotated[str, Field(strict=True, pattern=r"\A[a-z][a-z0-9_]{0,31}\z")]
Code = Annotated[str, Field(strict=True, pattern=r"\A[!-~]{1,64}\z")]
FieldPath = Annotated[str, Field(strict=True, pattern=r"\A[A-Za-z0-9_]{1,64}(?:\.[A-Za-z0-9_]{1,64}){0,3}\z")]
HeaderName = Annotated[str, Field(strict=True, pattern=r"\A[A-Za-z][A-Za-z0-9-]{0,63}\z")]
HeaderText = Annotated[str, Field(strict=True, min_length=1, max_length=500, pattern=r"\A[ -~]*\z")]
HttpsUrl = Annotated[str, Field(strict=True, max_length=500, pattern=r"\Ahttps://[!-~]+\z")]
FormFields = Annotated[dict[Text, Text], Field(max_length=16)]


class ConfigTable(BaseModel):
    """The base of all configuration tables: immutable, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EndpointParam(ConfigTable):
    """A named part of the provider's URLs that each connection sets (a shop, an account, a host)."""

    description: Text = Field(description="What your customer or you must enter, in plain words.")
    example: Text | None = Field(default=None, description="An example value. Default none.")
    kind: ParamKind = Field(
        default="label", description="Pattern that the value must match as a whole. Default label."
    )
    one_of: tuple[Text, ...] = Field(default=(), description="The allowed values. Default any of the kind.")
    default: Text | None = Field(
        default=None,
        description="Value of a connection that sets none. Default none.",
    )
    strip_suffix: Text | None = Field(
        default=None, description="Removed from the end of a value: `my-shop.myshopify.com` is `my-shop`."
    )
    dash_for_underscore: Flag = Field(
        default=False,
        description="Replace `_` by `-`: NetSuite's `123_SB1` is host `123-sb1`. Default false.",
    )

    def normalise(self, value: str) -> str:
        """Return the canonical form of *value*.

        Raises:
            InvalidEndpointError: The value is not acceptable.
        """
        # Before lower(), which turns the Kelvin sign into an ordinary k.
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


class EndpointsConfig(ConfigTable):
    """The URLs of the OAuth endpoints. ``{name}`` in a URL stands for a parameter."""

    token: Text | None = Field(default=None, description="Token endpoint. Required unless static_key.")
    authorize: Text | None = Field(
        default=None,
        description="Authorization endpoint, where your customer consents. Default none.",
    )
    issuer: Text | None = Field(
        default=None,
        description="The issuer identifier in each authorization response (iss, RFC 9207). "
        "Default unknown: an iss must be at the host of authorize or token.",
    )
    params: dict[Key, EndpointParam] = Field(
        default_factory=dict, description="The parameters of all URLs of the profile. Default none."
    )


class ExtraFieldsConfig(ConfigTable):
    """Form fields that this provider requires in addition to the standard ones."""

    refresh: FormFields = Field(default_factory=dict, description="Added to a refresh. Default none.")
    code: FormFields = Field(default_factory=dict, description="Added to a code exchange. Default none.")
    authorize: FormFields = Field(
        default_factory=dict, description="Added to the query of the authorization URL. Default none."
    )


class ScopesConfig(ConfigTable):
    """How scopes are written, and the default ones."""

    separator: Literal[" ", ",", "+"] = Field(default=" ", description="Between scopes. Default a space.")
    default: tuple[Text, ...] = Field(
        default=(),
        description="Scopes that a consent asks for if you name none. Default none.",
    )


class RefreshWindowsConfig(ConfigTable):
    """When a refresh is due, as lengths of time before the access token expires."""

    lead_s: Seconds | None = Field(
        default=None,
        description="Time before expiry at which a refresh is scheduled. "
        "Default min(30 min, max(5 min, TTL/6), TTL/2).",
    )
    buffer_s: Seconds | None = Field(
        default=None,
        description="Within this time before expiry, a read starts a refresh and still returns the current "
        "token. "
        "Default lead/3.",
    )
    critical_s: Seconds | None = Field(
        default=None,
        description="Within this time before expiry, a refresh precedes all others. "
        "Default lead/6, at least 1 min.",
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        lengths_s = [value for value in (self.critical_s, self.buffer_s, self.lead_s) if value is not None]
        if lengths_s != sorted(lengths_s):
            raise ValueError("critical_s, buffer_s and lead_s must not decrease in this order")
        return self


class ReplayConfig(ConfigTable):
    """Whether a refresh may be sent again if no response to it arrived."""

    policy: ReplayPolicy = Field(
        description="What the provider does with a refresh token that was used before.",
    )
    grace_s: Seconds | None = Field(
        default=None, description="How long a used refresh token is still accepted. Required for grace."
    )
    replay_at_expiry: Flag | None = Field(
        default=None,
        description="Send the refresh once more after the access token has expired. "
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


class TokenRateConfig(ConfigTable):
    """The assumed rate limit of the token endpoint."""

    limit: int = Field(
        default=60,
        strict=True,
        ge=1,
        le=1_000_000,
        description="Requests in a window. Default 60.",
    )
    window_s: Seconds = Field(default=60.0, description="Length of the window. Default 60.")
    scope: Literal["app", "app_and_account"] = Field(
        default="app",
        description="Whether the provider counts per client id, or per client id and account. Default app.",
    )


class ErrorCodesConfig(ConfigTable):
    """The meaning of error codes of the token endpoint. A code matches exactly."""

    code_fields: tuple[ErrorCodePath, ...] = Field(
        default=("error", "error.code", "error.type", "error.status"),
        min_length=1,
        description="Paths of error codes in the response. Default error, also as an object.",
    )
    fatal: tuple[Code, ...] = Field(
        default=("invalid_grant",),
        description="The grant no longer exists: the connection becomes needs_reauth. Default invalid_grant.",
    )
    fatal_phrases: tuple[Text, ...] = Field(
        default=(),
        description="Texts in the error description, in any case, that mean the same as fatal. Default none.",
    )
    client: tuple[Code, ...] = Field(
        default=("invalid_client",),
        description="Your app itself is rejected: refreshes of this client id are paused. Default "
        "invalid_client.",
    )
    config: tuple[Code, ...] = Field(
        default=("unauthorized_client", "unsupported_grant_type", "invalid_scope"),
        description="Your app's settings are wrong. "
        "Default unauthorized_client, unsupported_grant_type, invalid_scope.",
    )
    permission: tuple[Code, ...] = Field(
        default=("access_denied", "insufficient_scope"),
        description="A permission is missing. Default access_denied, insufficient_scope.",
    )
    request: tuple[Code, ...] = Field(
        default=("invalid_request",), description="The request is malformed. Default invalid_request."
    )
    retryable: tuple[Code, ...] = Field(
        default=("temporarily_unavailable", "server_error"),
        description="The request was not processed, whatever the status: it is sent again. "
        "Default temporarily_unavailable, server_error.",
    )
    rate_limited: tuple[Code, ...] = Field(
        default=(), description="Those of retryable that mean a rate limit. Default none."
    )
    ambiguous: tuple[Code, ...] = Field(
        default=("server_error",),
        description="Those of retryable that, on a 5xx, leave open whether the request was processed. "
        "Default server_error.",
    )
    gone_statuses: tuple[Annotated[int, Field(strict=True, ge=400, le=499)], ...] = Field(
        default=(), description="Statuses that mean the account no longer exists. Default none."
    )

    @model_validator(mode="after")
    def _check_lists(self) -> Self:
        both = sorted({*self.retryable} & {*self.fatal, *self.client, *self.config, *self.permission})
        if both:
            raise ValueError(f"{both[0]} is in retryable and in a list of permanent codes")
        stray = sorted(({*self.rate_limited} | {*self.ambiguous}) - {*self.retryable})
        if stray:
            raise ValueError(f"{stray[0]} is in rate_limited or ambiguous but not in retryable")
        return self


class RefreshTokenConfig(ConfigTable):
    """The lifetime of refresh tokens."""

    issued: Flag = Field(default=True, description="Whether a grant includes a refresh token. Default true.")
    idle_lifetime_s: Seconds | None = Field(
        default=None,
        description="A refresh token expires if it is unused for this long; each refresh starts anew. "
        "Default unknown.",
    )
    max_lifetime_s: Seconds | None = Field(
        default=None,
        description="A refresh token expires this long after the consent, used or not. Default unknown.",
    )
    expires_in_field: FieldPath | None = Field(
        default=None, description="Path of its remaining lifetime in the response. Default none."
    )


class AccountConfig(ConfigTable):
    """Where the id of the provider's account of a connection is found."""

    param: Key | None = Field(
        default=None,
        description="Endpoint parameter that is the account id. Default none.",
    )
    field: FieldPath | None = Field(
        default=None,
        description="Path of the account id in a token response. Default none.",
    )
    url_segment: int | None = Field(
        default=None, strict=True, ge=0, le=9,
        description="The field is a URL; the account id is this segment of its path, from 0. Default none.",
    )  # fmt: skip
    callback_param: Text | None = Field(
        default=None,
        description="Query parameter of the redirect after a consent that is the account id. Default none.",
    )
    case_insensitive: Flag = Field(
        default=False, description="Whether account ids ignore case. Default false."
    )

    @model_validator(mode="after")
    def _check_segment(self) -> Self:
        if self.url_segment is not None and self.field is None:
            raise ValueError("url_segment needs field")
        return self


class AssertionConfig(ConfigTable):
    """How the signed JWT of the strategy assertion is built (RFC 7523)."""

    sent_as: Literal["client_assertion", "grant"] = Field(
        description="client_assertion: it authenticates a client_credentials grant; grant: it is the grant "
        "itself.",
    )
    alg: Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"] = Field(
        description="Signature algorithm; your key must fit."
    )
    audience: Text = Field(
        default="token_endpoint",
        description="The claim aud: token_endpoint for its URL, or another text. Default token_endpoint.",
    )
    subject: Literal["none", "client_id", "configured"] = Field(
        default="none",
        description="The claim sub: none, the client id, or the setting `subject` of the connection. "
        "Default none.",
    )
    scope_claim: Literal["none", "list", "text"] = Field(
        default="none", description="The claim scope: none, a list, or one text. Default none."
    )
    jti: Flag = Field(default=True, description="Whether each assertion has a unique id. Default true.")
    lifetime_s: int = Field(
        default=300, strict=True, ge=10, le=3_600, description="exp - iat of an assertion. Default 300."
    )


class CredentialHeader(ConfigTable):
    """The header of an API call that contains the access token or key, and fixed headers."""

    name: HeaderName = Field(default="Authorization", description="Header name. Default Authorization.")
    format: HeaderText = Field(
        default="Bearer {token}",
        description="Its value; {token} stands for the secret. Default `Bearer {token}`.",
    )
    fixed: dict[HeaderName, HeaderText] = Field(
        default_factory=dict, description="Additional headers of each call. Default none."
    )

    @model_validator(mode="after")
    def _check_format(self) -> Self:
        if re.findall(r"\{token\}|[{}]", self.format) != ["{token}"]:
            raise ValueError("format must contain {token} once and no other brace")
        return self


class RevocationConfig(ConfigTable):
    """The request that revokes a grant at the provider."""

    url: Text = Field(description="URL; you can use endpoint parameters, {client_id} and {account_id} in it.")
    method: Literal["POST", "DELETE"] = Field(default="POST", description="HTTP method. Default POST.")
    authenticates: Literal["client", "token", "nothing"] = Field(
        default="client",
        description="How the request is authenticated. client: as at the token endpoint; token: with the "
        "access token "
        "in its header. Default client.",
    )
    sends: Literal["refresh_token", "access_token", "nothing"] = Field(
        default="refresh_token", description="The form field `token`. Default refresh_token."
    )


class ProbeRequestConfig(ConfigTable):
    """A harmless request that shows whether a credential works."""

    url: Text = Field(description="URL; you can use endpoint parameters in it.")
    method: Literal["GET", "POST"] = Field(default="GET", description="HTTP method. Default GET.")
    json_body: Text | None = Field(default=None, description="Body of a POST. Default none.")


def _unverified_form(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"[a-z0-9_.]{1,100}: [^\x00-\x1f]{3,400}", value):
        raise ValueError("write `path.of.the.field: what is not verified`")
    return value


Unverified = Annotated[str, Field(strict=True), BeforeValidator(_unverified_form)]
