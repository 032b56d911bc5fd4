"""A provider profile: everything fairlead must know of a vendor to keep its tokens fresh (T1).

Profiles are data. A *variant* lays some fields over the base (Shopify's online tokens); an *overlay*
does the same from code or settings (a test's endpoint, a demo's shorter times). Both are checked like
a file, so an impossible profile never starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.policy.providers import profile_parts as parts
from fairlead.policy.providers.call_settings import CallDefaults
from fairlead.policy.providers.endpoint import (
    HostBy,
    InvalidEndpointError,
    ParamKind,
    Template,
    build_url,
    host_by,
    parse_template,
)
from fairlead.policy.providers.pattern import Pattern, in_order
from fairlead.policy.providers.profile_api import Api
from fairlead.policy.providers.profile_limits import Limits
from fairlead.policy.providers.profile_problem import Problem, problems_of, told

NAME = r"\A[a-z0-9][a-z0-9_.-]{0,63}\z"
"""Form of provider and variant names (R36)."""

Place = Literal["token", "authorize", "issuer", "revoke", "test"]
_API = "apis."
_HOST = "hosts."
_BELOW = "*."

_SUPPLIED: Mapping[str, ParamKind] = {"account_id": "segment", "client_id": "segment"}
"""Placeholders that fairlead fills in itself, beside the declared parameters."""


class Profile(parts.Table):
    """One vendor. Built by load_profiles, variant or overlay, which check it as a whole."""

    name: Annotated[str, Field(strict=True, pattern=NAME)] = Field(description="Name of the provider.")
    title: parts.Text = Field(description="The vendor's own name.")
    sources: tuple[parts.HttpsUrl, ...] = Field(
        default=(), description="Pages the facts come from. Default none."
    )
    strategy: parts.Strategy = Field(description="How a fresh token is obtained; static_key: it never is.")
    allow_http: parts.Flag = Field(
        default=False, description="Plain http and any port, for tests on one machine. Default false."
    )
    endpoints: parts.EndpointSettings = Field(
        default_factory=parts.EndpointSettings, description="Where requests go. Default nowhere."
    )
    client_auth: parts.ClientAuth = Field(
        default="body", description="How your app authenticates at the token endpoint. Default body."
    )
    extra_fields: parts.ExtraFields = Field(
        default_factory=parts.ExtraFields, description="Fields beside the standard ones."
    )
    scopes: parts.Scopes = Field(default_factory=parts.Scopes, description="How scopes are written.")
    ttl_default_s: parts.Seconds | None = Field(
        default=None,
        description="Life of an access token if the response gives none. Default none: it never expires.",
    )
    expires_in_unit: Literal["s", "ms"] = Field(
        default="s", description="Unit of expires_in in the response. Default s."
    )
    windows: parts.WindowSettings = Field(
        default_factory=parts.WindowSettings, description="When a refresh is due."
    )
    replay: parts.ReplaySettings | None = Field(
        default=None, description="After an unknown outcome. Required unless static_key."
    )
    rotates: parts.Flag = Field(
        default=False, description="Whether a refresh gives a new refresh token. Default false."
    )
    rate: parts.Rate = Field(default_factory=parts.Rate, description="Limit of the token endpoint.")
    limits: Limits = Field(default_factory=Limits, description="Limits of API calls.")
    apis: dict[parts.Key, Api] = Field(
        default_factory=dict, description="Its APIs by name. Default none: your calls give whole URLs."
    )
    hosts: tuple[parts.Text, ...] = Field(
        default=(),
        max_length=32,
        description="Hosts besides those of its addresses that calls, and so the credential, may go to. "
        "`*.example.com`: all below it; ``{name}``: a parameter. Default none.",
    )
    client: CallDefaults = Field(
        default_factory=CallDefaults,
        description="Defaults of calls; your connections can override them.",
    )
    patterns: tuple[Pattern, ...] = Field(
        default=(),
        description="What responses of its API mean; they precede the built-in patterns. Default none.",
    )
    errors: parts.ErrorRules = Field(default_factory=parts.ErrorRules, description="What error codes mean.")
    refresh_token: parts.RefreshTokenFacts = Field(
        default_factory=parts.RefreshTokenFacts, description="How long refresh tokens live."
    )
    account: parts.AccountSettings = Field(
        default_factory=parts.AccountSettings, description="How you learn the account of a token."
    )
    backoff_factor: Annotated[float, Field(strict=True, ge=0.1, le=10)] = Field(
        default=1.0, description="Scales the base of every backoff of this provider. Default 1."
    )
    assertion: parts.AssertionFacts | None = Field(
        default=None, description="The signed JWT. Required for the assertion strategy."
    )
    credential_header: parts.CredentialHeader = Field(
        default_factory=parts.CredentialHeader, description="How an API call carries the secret."
    )
    revoke: parts.Revoke | None = Field(default=None, description="How a grant is revoked. Default unknown.")
    test: parts.Probe | None = Field(
        default=None, description="A harmless request with which you test a connection. Default none."
    )
    unverified: tuple[parts.Unverified, ...] = Field(
        default=(), description="Facts that you should check before you rely on them: `path: why`."
    )
    variants: dict[Annotated[str, Field(pattern=NAME)], dict[str, Any]] = Field(
        default_factory=dict,
        description="Named changes to this profile; `unset` lists dotted fields to take away.",
    )
    variant_name: Annotated[str, Field(pattern=NAME)] | None = Field(
        default=None, description="Set by fairlead: the variant this profile is."
    )

    # ---- what others ask of a profile

    @property
    def label(self) -> str:
        """``name`` or ``name:variant``, for messages."""
        return f"{self.name}:{self.variant_name}" if self.variant_name else self.name

    @property
    def refreshes(self) -> bool:
        """Whether this provider's credentials can be renewed without the customer."""
        return self.strategy == "assertion" or (
            self.strategy == "refresh_token" and self.refresh_token.issued
        )

    @property
    def replay_at_expiry(self) -> bool:
        """Whether one replay is made once the access token has expired (strict policies only)."""
        if self.replay is None or not self.replay.policy.startswith("strict"):
            return False
        if self.replay.replay_at_expiry is None:
            return self.replay.policy == "strict"
        return self.replay.replay_at_expiry

    def endpoint_values(self, given: Mapping[str, str]) -> dict[str, str]:
        """The canonical value of each endpoint parameter, defaults put in.

        Raises InvalidInputError for an unknown, missing or malformed one; the value itself is not repeated.
        """
        unknown = sorted(set(given) - set(self.endpoints.params))
        if unknown:
            known = ", ".join(sorted(self.endpoints.params)) or "none"
            raise self._input("an endpoint parameter is not known", f"this provider has: {known}")
        return {name: self._value(name, given.get(name)) for name in self.endpoints.params}

    def _value(self, name: str, value: str | None) -> str:
        param = self.endpoints.params[name]
        value = param.default if value is None else value
        way_out = param.description + (f", for example {param.example}" if param.example else "")
        if value is None:
            raise self._input(f"endpoint parameter {name!r} is missing", way_out)
        try:
            return param.normalise(value)
        except InvalidEndpointError as refused:
            raise self._input(f"endpoint parameter {name!r} {refused}", way_out) from None

    def url(self, place: Place, values: Mapping[str, str]) -> str:
        """The address of *place* for a connection; InvalidInputError where there is none or it is unsafe."""
        return self._url(
            place, values, f"no {place} endpoint is known", "add it to a profile file of your own"
        )

    def host_by(self, place: Place, values: Mapping[str, str]) -> HostBy:
        """Who decides the host of *place* for a connection: a default, or one of `one_of`, is a profile's."""
        parsed = self._parsed.get(place)
        if parsed is None:
            return "profile"
        params = self.endpoints.params
        given = {name: self._value(name, values.get(name)) for name in parsed.names & set(params)}
        known = {
            name: value
            for name, value in given.items()
            if value == params[name].default or value in params[name].one_of
        }
        return host_by(parsed, known)

    def has_hosts(self, place: Place) -> bool:
        """Return whether connections have hosts of their own at *place*."""
        parsed = self._parsed.get(place)
        return parsed is not None and "{" in parsed.host

    def api_url(self, api: str, values: Mapping[str, str]) -> str:
        """The address that calls of *api* begin with; InvalidInputError where there is none or it is unsafe."""
        known = ", ".join(self.apis) or "none"
        hint = f"give the whole address, or one of its APIs: {known}"
        return self._url(_API + api, values, "it is not known where this API is", hint)

    @property
    def places(self) -> tuple[str, ...]:
        """What `place_url` knows the address of, and calls with the credential may go to."""
        others = (_HOST, "authorize", "issuer")
        return tuple(place for place in self._templates() if not place.startswith(others))

    def place_url(self, place: str, values: Mapping[str, str]) -> str:
        """The address of one of `places`; InvalidInputError where *values* lack what it needs."""
        return self._url(place, values, "no such address is known", "see its profile")

    def call_hosts(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """`hosts` for a connection with these endpoint parameters, without those that need others."""
        found = []
        for index, host in enumerate(self.hosts):
            try:
                url = self.place_url(f"{_HOST}{index}", values)
            except InvalidInputError:
                continue
            found.append((_BELOW if host.startswith(_BELOW) else "") + url.removeprefix("https://"))
        return tuple(found)

    def _url(self, place: str, values: Mapping[str, str], missing: str, hint: str) -> str:
        parsed = self._parsed.get(place)
        if parsed is None:
            raise self._input(missing, hint)
        given = {name: self._value(name, values.get(name)) for name in parsed.names - set(_SUPPLIED)}
        given |= {name: values[name] for name in parsed.names & set(_SUPPLIED) & set(values)}
        try:
            return build_url(parsed, given, self._kinds)
        except InvalidEndpointError as refused:
            raise self._input(f"the {place} endpoint {refused}", "correct the endpoint parameters") from None

    def canonical_account(self, raw: str) -> str:
        """The one spelling of an account id: `My-Shop.myshopify.com` and `my-shop` are the same account."""
        if self.account.param is not None:
            return self._value(self.account.param, raw)
        plain = raw.strip()
        if not 1 <= len(plain) <= 200 or not plain.isprintable():
            raise self._input("the account id is empty, too long or not printable", "give the provider's id")
        return plain.lower() if self.account.lower else plain

    def variant(self, name: str | None) -> Profile:
        """The profile with variant *name* laid over; itself for None. Raises InvalidInputError if unknown."""
        if name is None:
            return self
        if name not in self.variants:
            known = ", ".join(sorted(self.variants)) or "none"
            raise self._input("there is no such variant", f"this provider has: {known}")
        return self.overlay({**self.variants[name], "variants": {}, "variant_name": name})

    def overlay(self, changes: Mapping[str, Any]) -> Profile:
        """The profile with *changes* laid over, tables merged, `unset` taken away; raises InvalidConfigError."""
        built = checked_profile(self.model_dump(exclude_unset=True), f"profile {self.label}", changes)
        if isinstance(built, Profile):
            return built
        raise InvalidConfigError(told(built), provider=self.label, hint="correct the fields named above")

    def _input(self, what: str, hint: str) -> InvalidInputError:
        return InvalidInputError(what, provider=self.label, hint=hint)

    @cached_property
    def _parsed(self) -> dict[str, Template]:
        """Read once: each call asks."""
        return {
            place: parse_template(template, self._kinds, allow_http=self.allow_http)
            for place, template in self._templates().items()
        }

    @cached_property
    def _kinds(self) -> dict[str, ParamKind]:
        return {**_SUPPLIED, **{name: param.kind for name, param in self.endpoints.params.items()}}

    def _templates(self) -> dict[str, str]:
        found = {
            "token": self.endpoints.token,
            "authorize": self.endpoints.authorize,
            "issuer": self.endpoints.issuer,
            "revoke": self.revoke.url if self.revoke else None,
            "test": self.test.url if self.test else None,
            **{_API + name: api.url for name, api in self.apis.items()},
            **{f"{_HOST}{at}": f"https://{host.removeprefix(_BELOW)}" for at, host in enumerate(self.hosts)},
        }
        return {place: template for place, template in found.items() if template is not None}

    # ---- checks across tables, all findings at once

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        wrong = [*self._wrong_addresses(), *self._wrong_strategy()]
        wrong += [
            f"unverified names {note.split(':')[0]}, which is no field"
            for note in self.unverified
            if note.split(":")[0].split(".")[0] not in Profile.model_fields
        ]
        try:
            in_order(self.patterns)
        except ValueError as error:
            wrong.append(f"patterns: {error}")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    def _wrong_addresses(self) -> list[str]:
        wrong: list[str] = []
        declared = set(self.endpoints.params)
        used = {self.account.param} if self.account.param else set()
        for place, template in self._templates().items():
            try:
                used |= parse_template(template, self._kinds, allow_http=self.allow_http).names
            except InvalidEndpointError as refused:
                wrong.append(f"the {place} endpoint {refused}")
        used -= set(_SUPPLIED)
        wide = [host for host in self.hosts if host.startswith(_BELOW) and host.count(".") < 2]
        wrong += [f"hosts allows all below {host.removeprefix(_BELOW)!r}" for host in wide]
        wrong += [f"hosts has {host!r}, which is more than a host" for host in self.hosts if "/" in host]
        wrong += [f"endpoints.params.{name} is a reserved name" for name in declared & set(_SUPPLIED)]
        wrong += [f"account.param {name} is not declared in endpoints.params" for name in used - declared]
        if not wrong:
            wrong += [f"endpoints.params.{name} is not used" for name in sorted(declared - used)]
        return wrong

    def _wrong_strategy(self) -> list[str]:
        checks = {
            "static_key with ttl_default_s: a key that expires needs another strategy":
                self.strategy == "static_key" and self.ttl_default_s is not None,
            f"strategy {self.strategy} needs endpoints.token":
                self.strategy != "static_key" and self.endpoints.token is None,
            f"strategy {self.strategy} needs ttl_default_s":
                self.strategy != "static_key" and self.ttl_default_s is None,
            f"strategy {self.strategy} needs a replay table":
                self.strategy != "static_key" and self.replay is None,
            "strategy assertion, the assertion table and replay policy assertion go together": len({
                self.strategy == "assertion",
                self.assertion is not None,
                self.replay is not None and self.replay.policy == "assertion",
            }) > 1,
            "rotates = true contradicts replay policy stable":
                self.rotates and self.replay is not None and self.replay.policy == "stable",
        }  # fmt: skip
        return [what for what, is_wrong in checks.items() if is_wrong]


def checked_profile(
    data: Mapping[str, Any], file: str, changes: Mapping[str, Any] | None = None, at: str = ""
) -> Profile | list[Problem]:
    """The profile of *data* with *changes* laid over, or everything wrong with it; *at* names a variant."""
    try:
        return Profile.model_validate(laid_over(data, changes or {}))
    except (KeyError, TypeError):
        place = f"{at}.unset" if at else "unset"
        return [Problem(file, place, "names a field that is not there", "list dotted paths of set fields")]
    except ValidationError as error:
        return problems_of(error, Profile, file, at)


def laid_over(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """*changes* over *base*: tables merge, other values replace; `unset` lists dotted paths taken away.

    Raises KeyError for an `unset` path that *base* does not have.
    """
    result = deepcopy(dict(base))
    for path in changes.get("unset", ()):
        *tables, last = str(path).split(".")
        place = result
        for table in tables:
            place = place[table]
        del place[last]
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and key != "variants":
            result[key] = laid_over(old, value)
        elif key != "unset":
            result[key] = deepcopy(value)
    return result
