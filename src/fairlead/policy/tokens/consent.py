"""The checks of a consent's redirect address, account and issuer; its `state` is checked elsewhere.

Sources: RFC 9700 §2.1 and §4.4 (mix-up), RFC 9207 (`iss`), RFC 8252 §7.3 (loopback).
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from fairlead.policy.providers.origin import origin_of
from fairlead.policy.providers.profile import Profile

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def is_loopback(redirect_uri: str) -> bool:
    """Return whether *redirect_uri* leads a browser back to its own host, by http."""
    parts = urlsplit(redirect_uri)
    return parts.scheme == "http" and parts.hostname in LOOPBACK


def is_redirect(redirect_uri: str) -> bool:
    """Return whether a code may be sent to *redirect_uri*: by https, or by http within this host.

    >>> is_redirect("https://app.example/callback"), is_redirect("http://app.example/callback")
    (True, False)
    """
    try:
        parts = urlsplit(redirect_uri)
        host, is_bare = parts.hostname, "@" not in parts.netloc and "#" not in redirect_uri
    except ValueError:
        return False
    is_plain = redirect_uri.isascii() and redirect_uri.isprintable() and " " not in redirect_uri
    return bool(host) and is_bare and is_plain and (parts.scheme == "https" or is_loopback(redirect_uri))


def is_other_account(profile: Profile, endpoint: Mapping[str, str], account_id: str | None) -> bool:
    """Return whether a consent was given for another account than the one that *endpoint* leads to.

    Args:
        endpoint: The connection's endpoint parameters; they may name the account.
        account_id: The account that the callback names. None: it names none, which is accepted.
    """
    expected_id = endpoint.get(profile.account.param or "")
    if not expected_id or not account_id:
        return False
    return profile.canonical_account(expected_id) != profile.canonical_account(account_id)


def is_other_issuer(profile: Profile, endpoint: Mapping[str, str], issuer: str | None) -> bool:
    """Return whether *issuer*, the ``iss`` of a consent's callback, is not the provider that was asked.

    Otherwise the code of one provider could be sent to another (mix-up attack). If the profile states the
    issuer, *issuer* must equal it and must not be missing. Elsewhere *issuer* must be on the host of the
    consent page or of the token endpoint. Without one, state and PKCE protect the flow.
    """
    if profile.endpoints.issuer is not None:
        return issuer != profile.url("issuer", endpoint)
    if issuer is None:
        return False
    origins = {origin_of(profile.url(name, endpoint)) for name in ("authorize", "token")}
    return "?" in issuer or "#" in issuer or origin_of(issuer) not in origins - {None}
