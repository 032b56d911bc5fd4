"""The app's own secret goes to hosts that its owner knows (S29).

A profile may leave the whole host of an endpoint to who connects (``generic_oauth2``). Whoever names a host
of his own there would be told the secret that all tenants share, or be given an assertion that its key
signed. So such a host gets it only if the settings name it (``[providers.NAME] hosts``); a connection that
brings an app of its own asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from fairlead.engine.ports import ConnectionKey
from fairlead.engine.tokens.deps import AppCredential
from fairlead.engine.tokens.sealed_records import CredentialSecrets
from fairlead.errors import InvalidConfigError
from fairlead.policy.providers.profile import Place, Profile


def check_secret_host(
    profile: Profile,
    place: Place,
    endpoint: Mapping[str, str],
    app: AppCredential,
    key: ConnectionKey,
    own: CredentialSecrets | None = None,
) -> None:
    """Raise InvalidConfigError where a secret of the settings would go to a host that they do not name.

    *own*: what the connection has itself goes before the secrets of *app*.
    """
    if not _is_lent(profile, app, own) or profile.host_by(place, endpoint) != "choice":
        return
    host = urlsplit(profile.url(place, endpoint)).hostname
    if host in app.hosts:
        return
    raise InvalidConfigError(
        f"the {place} endpoint is at a host that the connection names and the settings do not: "
        "it gets no secret of their app",
        tenant=key.tenant,
        provider=key.provider,
        hint=f"put {host} into [providers.{key.provider}] hosts, or give the connection a client_id and "
        "a secret of its own",
    )


def _is_lent(profile: Profile, app: AppCredential, own: CredentialSecrets | None) -> bool:
    """Whether a request by *profile* would carry a secret of *app*, or be signed with its key."""
    if profile.client_auth in ("body", "basic") and app.client_secret and not (own and own.client_secret):
        return True
    return bool(profile.assertion and app.private_key and not (own and own.private_key))
