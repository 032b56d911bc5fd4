"""Revoke a grant at the provider: on request, and for a token that arrived after the revocation."""

from __future__ import annotations

from dataclasses import replace

from fairlead.engine.ports import Credential, NoResponse, TokenCall
from fairlead.engine.tokens.deps import RefreshDeps, profile_of
from fairlead.engine.tokens.grants import Grants
from fairlead.engine.tokens.sealed_records import CredentialSecrets
from fairlead.engine.tokens.secret_hosts import check_secret_host
from fairlead.errors import FairleadError
from fairlead.events import ServiceFailed
from fairlead.policy.tokens.outcome import Granted
from fairlead.policy.tokens.request import OAuthClient, revoke_request

DEADLINE_S = 15.0
CONFIRMED = "confirmed"


async def end_grant(
    deps: RefreshDeps, grants: Grants, credential: Credential, secrets: CredentialSecrets
) -> str:
    """Ask the provider to revoke the tokens of *secrets*; describe the result."""
    try:
        profile, app = profile_of(deps, credential), grants.app(credential, secrets)
        endpoint, key = credential.connection.endpoint, credential.connection.key
        if profile.revoke is not None and profile.revoke.authenticates == "client":
            check_secret_host(profile, "revoke", endpoint, app, key, secrets)
        request = revoke_request(
            profile, endpoint, OAuthClient(app.client_id, app.client_secret), secrets.tokens
        )
        call = TokenCall(
            request.url,
            request.headers,
            request.form,
            DEADLINE_S,
            reuse_connection=True,
            method=request.method,
        )
        answer = await deps.transport.send(call, nothing_to_mark)  # it spends no token
    except FairleadError as refused:
        return f"not asked: {refused.message}"
    if isinstance(answer, NoResponse):
        return f"no response: {answer.why}"
    return CONFIRMED if answer.status < 300 else f"answered {answer.status}"


async def end_if_revoked(
    deps: RefreshDeps, grants: Grants, credential: Credential, secrets: CredentialSecrets, granted: Granted
) -> None:
    """Revoke *granted* at the provider if it was not stored because the connection is revoked."""
    now = await deps.store.read_id(credential.connection.connection_id)
    if now is None or now.state != "revoked" or now.generation != credential.generation:
        return
    refresh_token = granted.refresh_token or secrets.tokens.refresh_token
    tokens = replace(secrets.tokens, access_token=granted.access_token, refresh_token=refresh_token)
    result = await end_grant(deps, grants, credential, replace(secrets, tokens=tokens))
    if result != CONFIRMED:
        key = credential.connection.key
        name = f"{key.tenant} {key.provider}"
        message = f"{name}: a token that arrived after its revocation may still be valid: {result}"
        deps.emit(ServiceFailed("revoke", message))


async def nothing_to_mark() -> None:
    """Record nothing before a send: revocations and tests spend nothing, and a code works only once."""
