"""The grant of a connection as a person, an import or a consent gives it, and the checks of its values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from fairlead._core.secret import Secret
from fairlead.engine.limits.limit_plans import check_settings
from fairlead.engine.ports import Connection, ConnectionKey, CredentialState, Json
from fairlead.engine.tokens.deps import AppCredential
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.payload import encode_args
from fairlead.policy.providers.connection_calls import call_settings_of
from fairlead.policy.providers.profile import Profile
from fairlead.policy.providers.setting_names import check_setting_names
from fairlead.policy.text.number import number_of
from fairlead.policy.tokens.parse import TOKEN_TYPE

MAX_SECRET = 64 * 1024
REQUIRED_SECRET = {
    "static_key": "an API key",
    "refresh_token": "a refresh token",
    "assertion": "a private key",
}
MAX_EXPIRES_IN_S = 10 * 366 * 86_400.0
_NO_CONNECTION = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Grant:
    """The secrets and settings of one connection, from a person or an import.

    Attributes:
        expires_in_s: The rest of the access token's lifetime. None: see given_lifetime().
        lifetime_s: Its whole lifetime as the issuer's response stated it.
        settings: None: keep the connection's settings.
        state: The state in the exporting database. Only an active grant is served and refreshed.
        other_account: Whether a reconnect may be for another account than before.
    """

    access_token: Secret | None = None
    refresh_token: Secret | None = None
    api_key: Secret | None = None
    expires_in_s: float | None = None
    lifetime_s: float | None = None
    token_type: str = "Bearer"
    scope: str | None = None
    account_id: str | None = None
    client_id: str = ""
    client_secret: Secret | None = None
    private_key: Secret | None = None
    key_id: str | None = None
    variant: str | None = None
    endpoint: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Json] | None = None
    state: CredentialState = "active"
    state_reason: str | None = None
    other_account: bool = False

    def digest(self) -> str:
        """Return a digest of the secrets and their lifetime, which identifies a repeated grant."""
        secrets = (self.access_token, self.refresh_token, self.api_key, self.client_secret, self.private_key)
        fields = [secret and secret.reveal() for secret in secrets]
        fields += [self.key_id, self.scope, self.token_type, str(self.expires_in_s)]
        return hashlib.sha256(json.dumps(fields).encode()).hexdigest()


def check_secrets(key: ConnectionKey, grant: Grant, profile: Profile, app: AppCredential) -> None:
    """Raise InvalidInputError if *grant* lacks a secret that the provider needs, or has a bad value."""
    secret_by_strategy = {
        "static_key": grant.api_key or grant.access_token,
        "refresh_token": grant.refresh_token or grant.access_token,
        "assertion": grant.private_key or app.private_key,
    }
    if not secret_by_strategy[profile.strategy]:
        raise _input_error(key, f"this provider needs {REQUIRED_SECRET[profile.strategy]}")
    for secret in (grant.access_token, grant.refresh_token, grant.api_key, grant.client_secret):
        text = secret.reveal() if secret else ""
        if len(text) > MAX_SECRET or any(ord(char) < 32 or ord(char) == 127 for char in text):
            raise _input_error(key, "a secret is too long or holds a line break or control character")
    if not TOKEN_TYPE.fullmatch(grant.token_type):
        raise _input_error(key, "token_type is not a word as Bearer is")
    if grant.expires_in_s is not None and not 0 <= number_of(grant.expires_in_s) < MAX_EXPIRES_IN_S:
        raise _input_error(key, "expires_in_s is not between 0 and ten years")


def check_connection_settings(
    key: ConnectionKey,
    variant: str | None,
    settings: Mapping[str, Json],
    profile: Profile,
    new_settings: Mapping[str, Json],
) -> None:
    """Raise for *settings* that are too large or allow no call; only names in *new_settings* are checked."""
    as_stored = {  # numbers of priority classes are keys of `minimum_slots`
        name: {str(number): item for number, item in value.items()} if isinstance(value, dict) else value
        for name, value in settings.items()
    }
    encode_args(as_stored, name="settings", tenant=key.tenant)
    check_setting_names(new_settings, tenant=key.tenant, provider=key.provider)
    check_settings(Connection(_NO_CONNECTION, key, variant, None, "", {}, settings), profile.limits)
    call_settings_of(profile, settings, tenant=key.tenant)


def _input_error(key: ConnectionKey, message: str) -> InvalidInputError:
    return InvalidInputError(message, tenant=key.tenant, provider=key.provider)
