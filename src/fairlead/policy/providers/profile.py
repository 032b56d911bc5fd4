"""A provider profile: the facts about a provider that fairlead needs to refresh tokens and to call APIs.

Profiles are data. A *variant* replaces some fields of the base profile (Shopify's online tokens). An *overlay*
does the same from code or settings (a test's endpoint, a demo's shorter times). Both are checked as strictly
as a file. Spec: T1.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import ValidationError, model_validator

from fairlead.errors import InvalidConfigError, InvalidInputError
from fairlead.policy.providers.endpoint import (
    HostControl,
    InvalidEndpointError,
    ParamKind,
    Template,
    build_url,
    host_control,
    parse_template,
)
from fairlead.policy.providers.pattern import sort_patterns
from fairlead.policy.providers.profile_fields import ProfileFields
from fairlead.policy.providers.profile_problem import ProfileProblem, format_problems, problems_from

EndpointName = Literal["token", "authorize", "issuer", "revoke", "test"]
"""The URLs of a profile that are not the base URL of an API."""
_API_PREFIX = "apis."
_HOST_PREFIX = "hosts."
_SUBDOMAINS = "*."

_BUILT_IN_PARAMS: Mapping[str, ParamKind] = {"account_id": "segment", "client_id": "segment"}
"""Placeholders that fairlead fills in itself, in addition to the declared parameters."""


class Profile(ProfileFields):
    """The profile of one provider, as `load_profiles`, `variant` or `overlay` return it."""

    @property
    def label(self) -> str:
        """``name`` or ``name:variant``, for messages."""
        return f"{self.name}:{self.variant_name}" if self.variant_name else self.name

    @property
    def is_refreshable(self) -> bool:
        """Whether this provider's access tokens can be refreshed without a new consent."""
        return self.strategy == "assertion" or (
            self.strategy == "refresh_token" and self.refresh_token.issued
        )

    @property
    def replay_at_expiry(self) -> bool:
        """Whether a refresh of unknown outcome is sent once more after the access token has expired."""
        if self.replay is None or not self.replay.policy.startswith("strict"):
            return False
        if self.replay.replay_at_expiry is None:
            return self.replay.policy == "strict"
        return self.replay.replay_at_expiry

    def endpoint_values(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the canonical value of each endpoint parameter of a connection.

        Args:
            values: The values that the connection sets; others have their default.

        Raises:
            InvalidInputError: A parameter is unknown, missing or malformed. The message does not repeat its value.
        """
        unknown = sorted(set(values) - set(self.endpoints.params))
        if unknown:
            names = ", ".join(sorted(self.endpoints.params)) or "none"
            raise self._input_error("an endpoint parameter is not known", f"this provider has: {names}")
        return {name: self._param_value(name, values.get(name)) for name in self.endpoints.params}

    def _param_value(self, name: str, value: str | None) -> str:
        """Return the canonical form of *value*, or the default of the parameter *name*."""
        param = self.endpoints.params[name]
        value = param.default if value is None else value
        hint = param.description + (f", for example {param.example}" if param.example else "")
        if value is None:
            raise self._input_error(f"endpoint parameter {name!r} is missing", hint)
        try:
            return param.normalise(value)
        except InvalidEndpointError as refused:
            raise self._input_error(f"endpoint parameter {name!r} {refused}", hint) from None

    def url(self, endpoint_name: EndpointName, values: Mapping[str, str]) -> str:
        """Return the URL of an endpoint for a connection with the endpoint parameters *values*.

        Raises:
            InvalidInputError: The profile has no such endpoint, or a parameter is missing or malformed.
        """
        missing = f"no {endpoint_name} endpoint is known"
        return self._url(endpoint_name, values, missing, "add it to a profile file of your own")

    def host_control(self, endpoint_name: EndpointName, values: Mapping[str, str]) -> HostControl:
        """Return what determines the host of an endpoint for a connection with the parameters *values*.

        A shared app's secret is not sent to a domain that only the connection chose. A value that equals the
        parameter's default or one of its `one_of` is the profile's choice. Without such an endpoint it is
        `profile`.
        """
        template = self._parsed_templates.get(endpoint_name)
        if template is None:
            return "profile"
        params = self.endpoints.params
        canonical = {name: self._param_value(name, values.get(name)) for name in template.names & set(params)}
        profile_values = {
            name: value
            for name, value in canonical.items()
            if value == params[name].default or value in params[name].one_of
        }
        return host_control(template, profile_values)

    def has_host_per_connection(self, endpoint_name: EndpointName) -> bool:
        """Return whether the host of an endpoint contains a parameter of the connection."""
        template = self._parsed_templates.get(endpoint_name)
        return template is not None and "{" in template.host

    def api_url(self, api: str, values: Mapping[str, str]) -> str:
        """Return the base URL of *api* for a connection with the endpoint parameters *values*.

        Raises:
            InvalidInputError: The profile has no such API, or a parameter is missing or malformed.
        """
        names = ", ".join(self.apis) or "none"
        hint = f"give the whole URL, or one of its APIs: {names}"
        return self._url(_API_PREFIX + api, values, "it is not known where this API is", hint)

    @property
    def call_targets(self) -> tuple[str, ...]:
        """Names of the URLs that requests with the credential may go to: token, revoke, test and `apis.NAME`."""
        others = (_HOST_PREFIX, "authorize", "issuer")
        return tuple(name for name in self._templates() if not name.startswith(others))

    def call_target_url(self, name: str, values: Mapping[str, str]) -> str:
        """Return the URL of one of `call_targets` or `hosts` for a connection with the parameters *values*.

        Args:
            name: An entry of `call_targets`, or ``hosts.INDEX``.
            values: The connection's endpoint parameters.

        Raises:
            InvalidInputError: A parameter that the URL needs is missing or malformed.
        """
        return self._url(name, values, "no such URL is known", "see its profile")

    def call_hosts(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Return the entries of `hosts`, with the endpoint parameters *values* of a connection filled in.

        An entry is left out if it needs a parameter that the connection lacks.
        """
        hosts = []
        for index, host in enumerate(self.hosts):
            try:
                url = self.call_target_url(f"{_HOST_PREFIX}{index}", values)
            except InvalidInputError:
                continue
            hosts.append((_SUBDOMAINS if host.startswith(_SUBDOMAINS) else "") + url.removeprefix("https://"))
        return tuple(hosts)

    def _url(self, name: str, values: Mapping[str, str], missing: str, hint: str) -> str:
        """Return the URL *name* with *values* filled in; *missing* and *hint* are the error if there is none."""
        template = self._parsed_templates.get(name)
        if template is None:
            raise self._input_error(missing, hint)
        built_in = set(_BUILT_IN_PARAMS)
        canonical = {
            param: self._param_value(param, values.get(param)) for param in template.names - built_in
        }
        canonical |= {param: values[param] for param in template.names & built_in & set(values)}
        try:
            return build_url(template, canonical, self._param_kinds)
        except InvalidEndpointError as refused:
            raise self._input_error(
                f"the {name} endpoint {refused}", "correct the endpoint parameters"
            ) from None

    def canonical_account(self, account_id: str) -> str:
        """Return the canonical form of an account id: `my-shop` for `My-Shop.myshopify.com`.

        Raises:
            InvalidInputError: It is empty, longer than 200 characters, not printable, or a malformed parameter.
        """
        if self.account.param is not None:
            return self._param_value(self.account.param, account_id)
        plain = account_id.strip()
        if not 1 <= len(plain) <= 200 or not plain.isprintable():
            hint = "give the provider's id"
            raise self._input_error("the account id is empty, too long or not printable", hint)
        return plain.lower() if self.account.case_insensitive else plain

    def variant(self, name: str | None) -> Profile:
        """Return the profile of the variant *name*, or this profile for None.

        Raises:
            InvalidInputError: The profile has no such variant.
        """
        if name is None:
            return self
        if name not in self.variants:
            names = ", ".join(sorted(self.variants)) or "none"
            raise self._input_error("there is no such variant", f"this provider has: {names}")
        return self.overlay({**self.variants[name], "variants": {}, "variant_name": name})

    def overlay(self, changes: Mapping[str, Any]) -> Profile:
        """Return a copy of this profile with *changes* merged in, as `merge_tables` does.

        Raises:
            InvalidConfigError: The resulting profile is not valid.
        """
        profile = build_profile(self.model_dump(exclude_unset=True), f"profile {self.label}", changes)
        if isinstance(profile, Profile):
            return profile
        problems = format_problems(profile)
        raise InvalidConfigError(problems, provider=self.label, hint="correct the fields named above")

    def _input_error(self, message: str, hint: str) -> InvalidInputError:
        return InvalidInputError(message, provider=self.label, hint=hint)

    @cached_property
    def _parsed_templates(self) -> dict[str, Template]:
        """The parsed templates by name, cached because every call needs one."""
        return {
            name: parse_template(template, self._param_kinds, allow_http=self.allow_http)
            for name, template in self._templates().items()
        }

    @cached_property
    def _param_kinds(self) -> dict[str, ParamKind]:
        declared = {name: param.kind for name, param in self.endpoints.params.items()}
        return {**_BUILT_IN_PARAMS, **declared}

    def _templates(self) -> dict[str, str]:
        """Return the URL templates of this profile by name: endpoints, ``apis.NAME`` and ``hosts.INDEX``."""
        templates = {
            "token": self.endpoints.token,
            "authorize": self.endpoints.authorize,
            "issuer": self.endpoints.issuer,
            "revoke": self.revoke.url if self.revoke else None,
            "test": self.test.url if self.test else None,
            **{_API_PREFIX + name: api.url for name, api in self.apis.items()},
            **{
                f"{_HOST_PREFIX}{index}": f"https://{host.removeprefix(_SUBDOMAINS)}"
                for index, host in enumerate(self.hosts)
            },
        }
        return {name: template for name, template in templates.items() if template is not None}

    # ---- checks across tables; one error lists all problems

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        problems = [*self._url_problems(), *self._strategy_problems()]
        problems += [
            f"unverified names {note.split(':')[0]}, which is no field"
            for note in self.unverified
            if note.split(":")[0].split(".")[0] not in Profile.model_fields
        ]
        try:
            sort_patterns(self.patterns)
        except ValueError as error:
            problems.append(f"patterns: {error}")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _url_problems(self) -> list[str]:
        """Return what is wrong with URLs, hosts and endpoint parameters."""
        problems: list[str] = []
        declared = set(self.endpoints.params)
        used = {self.account.param} if self.account.param else set()
        for name, template in self._templates().items():
            try:
                used |= parse_template(template, self._param_kinds, allow_http=self.allow_http).names
            except InvalidEndpointError as refused:
                problems.append(f"the {name} endpoint {refused}")
        reserved = set(_BUILT_IN_PARAMS)
        used -= reserved
        too_wide = [host for host in self.hosts if host.startswith(_SUBDOMAINS) and host.count(".") < 2]
        problems += [f"hosts allows all hosts below {host.removeprefix(_SUBDOMAINS)!r}" for host in too_wide]
        problems += [f"hosts has {host!r}, which is more than a host" for host in self.hosts if "/" in host]
        problems += [f"endpoints.params.{name} is a reserved name" for name in declared & reserved]
        problems += [f"account.param {name} is not declared in endpoints.params" for name in used - declared]
        if not problems:
            problems += [f"endpoints.params.{name} is not used" for name in sorted(declared - used)]
        return problems

    def _strategy_problems(self) -> list[str]:
        """Return which fields the strategy requires or forbids."""
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
        return [problem for problem, is_wrong in checks.items() if is_wrong]


def build_profile(
    data: Mapping[str, Any], file: str, changes: Mapping[str, Any] | None = None, table: str = ""
) -> Profile | list[ProfileProblem]:
    """Return the profile of *data* with *changes* merged in, or all its problems.

    Args:
        data: The fields of the base profile, as its TOML has them.
        file: The file that the problems name.
        changes: The fields of a variant or overlay. Default none.
        table: The table of the file that *changes* come from, for the problems' paths. Default the top level.
    """
    try:
        return Profile.model_validate(merge_tables(data, changes or {}))
    except (KeyError, TypeError):
        path = f"{table}.unset" if table else "unset"
        hint = "list dotted paths of fields that are set"
        return [ProfileProblem(file, path, "names a field that is not set", hint)]
    except ValidationError as error:
        return problems_from(error, Profile, file, table)


def merge_tables(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of *base* with *changes* merged in.

    Tables are merged, other values replaced. `variants` is replaced too, because the profile of a variant has
    none. `unset` in *changes* lists dotted paths that are removed first.

    Raises:
        KeyError: *base* has no value under a path of `unset`.
    """
    result = deepcopy(dict(base))
    for path in changes.get("unset", ()):
        *parents, last = str(path).split(".")
        table = result
        for parent in parents:
            table = table[parent]
        del table[last]
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and key != "variants":
            result[key] = merge_tables(old, value)
        elif key != "unset":
            result[key] = deepcopy(value)
    return result
