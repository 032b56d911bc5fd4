"""The fields of a provider profile, each with its meaning and default."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from fairlead.policy.providers import profile_parts as parts
from fairlead.policy.providers.call_settings import CallDefaults
from fairlead.policy.providers.pattern import Pattern
from fairlead.policy.providers.profile_api import ApiConfig
from fairlead.policy.providers.profile_limits import LimitsConfig

NAME = r"\A[a-z0-9][a-z0-9_.-]{0,63}\z"
"""Pattern of the names of providers and variants. Spec: R36."""


class ProfileFields(parts.ConfigTable):
    """The fields of a profile, without the checks across fields that Profile adds."""

    name: Annotated[str, Field(strict=True, pattern=NAME)] = Field(description="Name of the provider.")
    title: parts.Text = Field(description="The provider's own name, for people.")
    sources: tuple[parts.HttpsUrl, ...] = Field(
        default=(), description="Web pages that the facts are taken from. Default none."
    )
    strategy: parts.TokenStrategy = Field(
        description="How a new access token is obtained; static_key: never, the credential is a key."
    )
    allow_http: parts.Flag = Field(
        default=False, description="Accept http and any port, for tests on one machine. Default false."
    )
    endpoints: parts.EndpointsConfig = Field(
        default_factory=parts.EndpointsConfig, description="URLs of OAuth requests. Default none."
    )
    client_auth: parts.ClientAuth = Field(
        default="body", description="How your app authenticates at the token endpoint. Default body."
    )
    extra_fields: parts.ExtraFieldsConfig = Field(
        default_factory=parts.ExtraFieldsConfig,
        description="Form fields that this provider requires in addition to the standard ones. Default none.",
    )
    scopes: parts.ScopesConfig = Field(
        default_factory=parts.ScopesConfig, description="How scopes are written, and the default ones."
    )
    ttl_default_s: parts.Seconds | None = Field(
        default=None,
        description="Lifetime of an access token if the response states none. Required unless static_key.",
    )
    expires_in_unit: Literal["s", "ms"] = Field(
        default="s", description="Unit of expires_in in the response. Default s."
    )
    windows: parts.RefreshWindowsConfig = Field(
        default_factory=parts.RefreshWindowsConfig, description="When a refresh is due."
    )
    replay: parts.ReplayConfig | None = Field(
        default=None,
        description="Whether a refresh may be sent again if its outcome is unknown. Required unless "
        "static_key.",
    )
    rotates: parts.Flag = Field(
        default=False, description="Whether a refresh returns a new refresh token. Default false."
    )
    rate: parts.TokenRateConfig = Field(
        default_factory=parts.TokenRateConfig, description="Rate limit of the token endpoint."
    )
    limits: LimitsConfig = Field(default_factory=LimitsConfig, description="Limits of API calls.")
    apis: dict[parts.Key, ApiConfig] = Field(
        default_factory=dict, description="Its APIs by name. Default none: your calls give whole URLs."
    )
    hosts: tuple[parts.Text, ...] = Field(
        default=(),
        max_length=32,
        description="Additional hosts that calls, and so the credential, may go to, beside those of its "
        "URLs. "
        "`*.example.com`: all hosts below it; ``{name}``: a parameter. Default none.",
    )
    client: CallDefaults = Field(
        default_factory=CallDefaults,
        description="Defaults of calls; your connections can override them.",
    )
    patterns: tuple[Pattern, ...] = Field(
        default=(),
        description="Rules that classify its responses; they precede the rules for all providers. Default "
        "none.",
    )
    errors: parts.ErrorCodesConfig = Field(
        default_factory=parts.ErrorCodesConfig, description="Meaning of the token endpoint's error codes."
    )
    refresh_token: parts.RefreshTokenConfig = Field(
        default_factory=parts.RefreshTokenConfig, description="Lifetime of refresh tokens."
    )
    account: parts.AccountConfig = Field(
        default_factory=parts.AccountConfig,
        description="Where the id of the provider's account of a connection is found.",
    )
    backoff_factor: Annotated[float, Field(strict=True, ge=0.1, le=10)] = Field(
        default=1.0, description="Factor on the base delay of every backoff of this provider. Default 1."
    )
    assertion: parts.AssertionConfig | None = Field(
        default=None, description="The signed JWT. Required for the strategy assertion."
    )
    credential_header: parts.CredentialHeader = Field(
        default_factory=parts.CredentialHeader,
        description="Header of an API call that contains the credential.",
    )
    revoke: parts.RevocationConfig | None = Field(
        default=None, description="Request that revokes a grant. Default none."
    )
    test: parts.ProbeRequestConfig | None = Field(
        default=None, description="Harmless request with which you test a connection. Default none."
    )
    unverified: tuple[parts.Unverified, ...] = Field(
        default=(),
        description="Facts that you should verify before you rely on them: `path: why`. Default none.",
    )
    variants: dict[Annotated[str, Field(pattern=NAME)], dict[str, Any]] = Field(
        default_factory=dict,
        description="Named changes to this profile; `unset` lists dotted paths of fields to remove. Default "
        "none.",
    )
    variant_name: Annotated[str, Field(pattern=NAME)] | None = Field(
        default=None, description="Name of the variant; set by fairlead."
    )
