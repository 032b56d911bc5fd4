"""The secret of a shared app is sent only to hosts that the operator knows. Spec: S29.

With some profiles (``generic_oauth2``) the tenant chooses the whole host of an endpoint. A host of an
attacker would receive the secret that all tenants share, or an assertion signed with its key. So such a host
gets it only if the settings name the host (``[providers.NAME] hosts``). A connection with an app of its own
may use any host.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from fairlead.engine.ports import ConnectionKey
from fairlead.engine.tokens.deps import AppCredential
from fairlead.engine.tokens.sealed_records import CredentialSecrets
from fairlead.errors import InvalidConfigError
from fairlead.policy.providers.profile import EndpointName, Profile


def check_secret_host(
    profile: Profile,
    endpoint_name: EndpointName,
    endpoint: Mapping[str, str],
    app: AppCredential,
    key: ConnectionKey,
    secrets: CredentialSecrets | None = None,
) -> None:
    """Raise InvalidConfigError if a secret of *app* would be sent to a host that the settings do not name.

    The connection's own *secrets* take precedence over those of *app*.
    """
    if not _uses_app_secret(profile, app, secrets):
        return
    if profile.host_control(endpoint_name, endpoint) != "connection_domain":
        return
    host = urlsplit(profile.url(endpoint_name, endpoint)).hostname
    if host in app.hosts:
        return
    raise InvalidConfigError(
        f"the {endpoint_name} endpoint is at a host that the connection names and the settings do not: "
        "it gets no secret of their app",
        tenant=key.tenant,
        provider=key.provider,
        hint=f"put {host} into [providers.{key.provider}] hosts, or give the connection a client_id and "
        "a secret of its own",
    )


def _uses_app_secret(profile: Profile, app: AppCredential, secrets: CredentialSecrets | None) -> bool:
    """Return whether a request by *profile* would carry the secret of *app*, or be signed with its key."""
    sends_secret = profile.client_auth in ("body", "basic") and app.client_secret
    if sends_secret and not (secrets and secrets.client_secret):
        return True
    return bool(profile.assertion and app.private_key and not (secrets and secrets.private_key))
