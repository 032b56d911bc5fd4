"""Endpoint URLs: a template of the profile, filled in with the checked parameters of a connection.

``https://{shop}.myshopify.com/admin/oauth/access_token`` is safe only if the value of *shop* cannot end the
host name. So a value must match the pattern of its kind as a whole, and the built URL is parsed again: its
host must equal the template's host with the value filled in. The patterns are defined here and not in
profiles, so none of them can be slow or too wide.

Spec: S01, V9, F9.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

ParamKind = Literal["label", "subdomain", "host", "segment", "path"]
HostControl = Literal["profile", "connection_subdomain", "connection_domain"]
"""What determines the host of a URL.

profile: the profile alone. connection_subdomain: a parameter of the connection, below a domain of the profile.
connection_domain: a parameter of the connection, which may name any domain.
"""

LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PATTERN: Mapping[ParamKind, re.Pattern[str]] = {
    "label": re.compile(LABEL),
    "subdomain": re.compile(rf"{LABEL}(?:\.{LABEL}){{0,3}}"),
    "host": re.compile(rf"{LABEL}(?:\.{LABEL}){{1,9}}"),
    "segment": re.compile(r"[A-Za-z0-9._~-]{1,128}"),
    "path": re.compile(r"[A-Za-z0-9._~-]{1,64}(?:/[A-Za-z0-9._~-]{1,64}){0,7}"),
}
KIND_TEXT: Mapping[ParamKind, str] = {
    "label": "one DNS label: a-z, 0-9 and -, 1 to 63 characters, no dot",
    "subdomain": "one to four DNS labels with dots between",
    "host": "a full host name of at least two DNS labels, no address and no local name",
    "segment": "one path segment: letters, digits and - . _ ~, not only dots",
    "path": "a path without query, 1 to 8 segments, no leading slash",
}
_IN_PATH = frozenset({"segment", "path"})
_LABELS_OF_A_DOMAIN = 2
_LONGEST_VALUE = 253  # what DNS allows for a whole name
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]{0,31})\}")
_TEMPLATE = re.compile(r"(https?)://([^/?#@\\\s]+)((?:/[^?#\\\s]*)?)")
_FIXED_HOST = re.compile(rf"{LABEL}(?:\.{LABEL})*(:[0-9]{{1,5}})?")
_FIXED_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]*)*")
# A name that ends in a number is read as an IPv4 address by browsers and by inet_aton ("127.1", "0x7f.1").
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LOCAL_ENDINGS = frozenset({"localhost", "localdomain", "local", "internal", "arpa", "home", "lan"})


class InvalidEndpointError(ValueError):
    """A parameter or a URL is not acceptable. The message gives the reason and never repeats the value."""


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed URL template.

    Attributes:
        scheme: ``https``, or ``http`` in a test's profile.
        host: The host with its port, which may contain ``{name}`` placeholders.
        path: The path, which may contain ``{name}`` placeholders.
        names: The names of all placeholders.
    """

    scheme: str
    host: str
    path: str
    names: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset(_PLACEHOLDER.findall(self.host + self.path)))


def checked_value(kind: ParamKind, value: str) -> str:
    """Return *value* if it is acceptable as a parameter of *kind*; raise InvalidEndpointError otherwise."""
    if not 1 <= len(value) <= _LONGEST_VALUE or not _PATTERN[kind].fullmatch(value):
        raise InvalidEndpointError(f"is not {KIND_TEXT[kind]}")
    if kind in _IN_PATH and any(set(segment) <= {"."} for segment in value.split("/")):
        raise InvalidEndpointError("has a path segment of dots only")
    if kind == "host":
        _refuse_local_name(value)
    return value


def _refuse_local_name(host: str) -> None:
    """Raise InvalidEndpointError if *host* is an IP address or a name of a local network."""
    last = host.rsplit(".", 1)[-1]
    if _NUMBER.fullmatch(last):
        raise InvalidEndpointError("is an address, not a host name")
    if last in _LOCAL_ENDINGS:
        raise InvalidEndpointError("is a name of a local network")


def parse_template(template: str, kinds: Mapping[str, ParamKind], *, allow_http: bool = False) -> Template:
    """Parse and check a URL template of a profile.

    Args:
        template: Such as ``https://{shop}.example.com/token``.
        kinds: The kind of each parameter that a placeholder may name.
        allow_http: Also accept http and any port. By default only https at its default port is accepted.

    Raises:
        InvalidEndpointError: The template is not acceptable.
    """
    match = _TEMPLATE.fullmatch(template)
    if match is None:
        raise InvalidEndpointError("is not https://host/path without user, query and fragment")
    parsed = Template(*match.groups())
    _check_names(parsed, kinds)
    _check_fixed_parts(parsed, allow_http)
    return parsed


def _check_names(parsed: Template, kinds: Mapping[str, ParamKind]) -> None:
    """Raise InvalidEndpointError if a placeholder is undeclared or stands where its kind is not safe."""
    unknown = sorted(parsed.names - set(kinds))
    if unknown:
        raise InvalidEndpointError(f"uses {{{unknown[0]}}}, which is not declared in endpoints.params")
    if any(kinds[name] in _IN_PATH for name in _PLACEHOLDER.findall(parsed.host)):
        raise InvalidEndpointError("uses a parameter of kind path or segment in its host")
    if any(kinds[name] in {"host", "subdomain"} for name in _PLACEHOLDER.findall(parsed.path)):
        raise InvalidEndpointError("uses a parameter of kind host or subdomain in its path")
    open_end = re.search(r"\{([a-z0-9_]+)\}$", parsed.host)
    if open_end and kinds[open_end[1]] != "host":
        raise InvalidEndpointError("ends its host with a parameter; only one of kind host may stand there")


def _check_fixed_parts(parsed: Template, allow_http: bool) -> None:
    """Raise InvalidEndpointError for a character, scheme or port that a URL of a profile may not have."""
    host = _FIXED_HOST.fullmatch(_PLACEHOLDER.sub("x", parsed.host))
    if host is None or not _FIXED_PATH.fullmatch(_PLACEHOLDER.sub("x", parsed.path)):
        raise InvalidEndpointError("has a character that does not belong in its host or path")
    if allow_http:
        return
    if parsed.scheme != "https":
        raise InvalidEndpointError("is not https (a test profile may say allow_http = true)")
    if host[1]:
        raise InvalidEndpointError("names a port (a test profile may say allow_http = true)")


def host_control(template: Template, profile_values: Mapping[str, str]) -> HostControl:
    """Return what determines the host of *template*.

    A domain of the profile has at least two labels: anybody can register a name below ``.com``.

    Args:
        template: The URL template.
        profile_values: The parameters of a connection that have a value which the profile itself names.

    >>> kinds = {"shop": "label", "host": "host"}
    >>> host_control(parse_template("https://{shop}.myshopify.com/", kinds), {})
    'connection_subdomain'
    >>> auth = parse_template("https://auth.{host}/", kinds)
    >>> host_control(auth, {}), host_control(auth, {"host": "example.com"})
    ('connection_domain', 'profile')
    """
    if not template.names:
        return "profile"
    filled_in = _PLACEHOLDER.sub(lambda match: profile_values.get(match[1], match[0]), template.host)
    host = filled_in.partition(":")[0]
    fixed_end = _PLACEHOLDER.split(host)[-1]
    if fixed_end == host:
        return "profile"
    is_below_fixed_domain = fixed_end.count(".") >= _LABELS_OF_A_DOMAIN
    return "connection_subdomain" if is_below_fixed_domain else "connection_domain"


def build_url(template: Template, values: Mapping[str, str], kinds: Mapping[str, ParamKind]) -> str:
    """Return the URL of *template* with *values* filled in.

    Raises:
        InvalidEndpointError: A value is missing or not of its kind, or the URL would lead to another host.

    >>> kinds = {"shop": "label"}
    >>> shopify = parse_template("https://{shop}.myshopify.com/admin", kinds)
    >>> build_url(shopify, {"shop": "my-shop"}, kinds)
    'https://my-shop.myshopify.com/admin'
    """
    if not template.names:  # nothing is filled in, and its parts were checked when it was parsed
        return f"{template.scheme}://{template.host}{template.path}"
    checked = {}
    for name in sorted(template.names):
        if name not in values:
            raise InvalidEndpointError(f"needs a value for {{{name}}}")
        checked[name] = checked_value(kinds[name], values[name])
    host = _PLACEHOLDER.sub(lambda match: checked[match[1]], template.host)
    path = _PLACEHOLDER.sub(lambda match: checked[match[1]], template.path)
    if len(host) > _LONGEST_VALUE:
        raise InvalidEndpointError(f"makes a host name longer than {_LONGEST_VALUE} characters")
    url = f"{template.scheme}://{host}{path}"
    parts = urlsplit(url)
    # A second check, independent of the patterns: a URL parser must see exactly this host.
    if (parts.scheme, parts.netloc, parts.path, parts.query, parts.fragment) != (
        template.scheme, host, path, "", "",
    ):  # fmt: skip
        raise InvalidEndpointError("would lead to another host than its template names")
    return url
