"""Endpoint addresses: a template of the profile with checked values put in (S01, V9, F9).

``https://{shop}.myshopify.com/admin/oauth/access_token`` is safe only while the value of *shop* cannot
end the host name. So a value must match the closed pattern of its kind as a whole, and the built
address is parsed again: its host must be the template's host with the value put in, to the letter.
Patterns are named here and not written in profiles, so none of them can be slow or too wide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

ParamKind = Literal["label", "subdomain", "host", "segment", "path"]
HostBy = Literal["profile", "name", "choice"]
"""Who decides the host of an address: the profile; who connects, but below a domain of the profile; who
connects, and the domain, too."""

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
    """A value or an address is not acceptable. The text says why and never repeats the value."""


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed address template. *host* and *path* may have ``{name}`` placeholders; *names* lists them."""

    scheme: str
    host: str
    path: str
    names: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset(_PLACEHOLDER.findall(self.host + self.path)))


def checked_value(kind: ParamKind, value: str) -> str:
    """*value* itself if it matches the pattern of *kind* as a whole; InvalidEndpointError otherwise."""
    if not 1 <= len(value) <= _LONGEST_VALUE or not _PATTERN[kind].fullmatch(value):
        raise InvalidEndpointError(f"is not {KIND_TEXT[kind]}")
    if kind in _IN_PATH and any(set(segment) <= {"."} for segment in value.split("/")):
        raise InvalidEndpointError("has a path segment of dots only")
    if kind == "host":
        _refuse_local_name(value)
    return value


def _refuse_local_name(host: str) -> None:
    last = host.rsplit(".", 1)[-1]
    if _NUMBER.fullmatch(last):
        raise InvalidEndpointError("is an address, not a host name")
    if last in _LOCAL_ENDINGS:
        raise InvalidEndpointError("is a name of a local network")


def parse_template(template: str, kinds: Mapping[str, ParamKind], *, allow_http: bool = False) -> Template:
    """Check *template* once, when its profile is loaded; InvalidEndpointError says what is wrong with it.

    *kinds* gives the kind of each placeholder. Without *allow_http* only https on its default port passes.
    """
    found = _TEMPLATE.fullmatch(template)
    if found is None:
        raise InvalidEndpointError("is not https://host/path without user, query and fragment")
    parsed = Template(*found.groups())
    _check_names(parsed, kinds)
    _check_fixed_parts(parsed, allow_http)
    return parsed


def _check_names(parsed: Template, kinds: Mapping[str, ParamKind]) -> None:
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
    host = _FIXED_HOST.fullmatch(_PLACEHOLDER.sub("x", parsed.host))
    if host is None or not _FIXED_PATH.fullmatch(_PLACEHOLDER.sub("x", parsed.path)):
        raise InvalidEndpointError("has a character that does not belong in its host or path")
    if allow_http:
        return
    if parsed.scheme != "https":
        raise InvalidEndpointError("is not https (a test profile may say allow_http = true)")
    if host[1]:
        raise InvalidEndpointError("names a port (a test profile may say allow_http = true)")


def host_by(template: Template, known: Mapping[str, str]) -> HostBy:
    """Who decides the host of *template*; values in *known* are the profile's.

    A domain is two labels at the end: of ``{name}.com`` anybody may have one.

    >>> kinds = {"shop": "label", "host": "host"}
    >>> host_by(parse_template("https://{shop}.myshopify.com/", kinds), {})
    'name'
    >>> auth = parse_template("https://auth.{host}/", kinds)
    >>> host_by(auth, {}), host_by(auth, {"host": "example.com"})
    ('choice', 'profile')
    """
    if not template.names:
        return "profile"
    host = _PLACEHOLDER.sub(lambda found: known.get(found[1], found[0]), template.host).partition(":")[0]
    fixed_end = _PLACEHOLDER.split(host)[-1]
    if fixed_end == host:
        return "profile"
    return "name" if fixed_end.count(".") >= _LABELS_OF_A_DOMAIN else "choice"


def build_url(template: Template, values: Mapping[str, str], kinds: Mapping[str, ParamKind]) -> str:
    """The address with *values* put in. Checks each value, then the host of the address it built.

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
    host = _PLACEHOLDER.sub(lambda found: checked[found[1]], template.host)
    path = _PLACEHOLDER.sub(lambda found: checked[found[1]], template.path)
    if len(host) > _LONGEST_VALUE:
        raise InvalidEndpointError(f"makes a host name longer than {_LONGEST_VALUE} characters")
    url = f"{template.scheme}://{host}{path}"
    parts = urlsplit(url)
    # The second wall: whatever a later pattern may let through, the parser must see exactly this host.
    if (parts.scheme, parts.netloc, parts.path, parts.query, parts.fragment) != (
        template.scheme, host, path, "", "",
    ):  # fmt: skip
        raise InvalidEndpointError("would lead to another host than its template names")
    return url
