"""Revocations at the provider, and tests of a connection."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.engine.ports import ConnectionKey, NoResponse, TokenCall
from fairlead.engine.tokens.connections import Connections
from fairlead.engine.tokens.deps import RefreshDeps, profile_of
from fairlead.engine.tokens.grants import Grants
from fairlead.engine.tokens.reader import TokenReader
from fairlead.engine.tokens.revocation import CONFIRMED, DEADLINE_S, end_grant, nothing_to_mark
from fairlead.engine.tokens.settle import Settler
from fairlead.errors import FairleadError, NotFoundError
from fairlead.policy.tokens.request import api_headers


@dataclass(frozen=True, slots=True)
class Probed:
    """The result of a test. *status* None: there was no response, for the reason in *why*."""

    works: bool
    status: int | None
    why: str
    took_s: float | None


class Accounts:
    """Revokes and tests connections."""

    def __init__(
        self,
        deps: RefreshDeps,
        grants: Grants,
        settler: Settler,
        reader: TokenReader,
        connections: Connections,
    ) -> None:
        self._deps = deps
        self._grants = grants
        self._settler = settler
        self._reader = reader
        self._connections = connections

    async def revoke(self, key: ConnectionKey, *, actor: str, reason: str) -> tuple[bool, str]:
        """Revoke a connection here, then at the provider.

        From the first step on nothing refreshes or serves it. If a refresh is in flight, the process that
        receives its response revokes the new token.

        Returns:
            Whether this call revoked it, and the provider's response in words.
        """
        previous = await self._deps.store.read(key)
        if previous is None:
            raise NotFoundError("there is no such connection", tenant=key.tenant, provider=key.provider)
        was_revoked = await self._connections.revoke(key, actor=actor, reason=reason)
        self._reader.forget(key)
        now = await self._deps.store.read(key) or previous
        try:
            secrets = await self._settler.open_secrets(now)
        except FairleadError as unreadable:
            return was_revoked, f"not asked: {unreadable.message}"
        result = await end_grant(self._deps, self._grants, now, secrets)
        if result == CONFIRMED and previous.rotation is not None and previous.rotation.phase != "intent":
            return was_revoked, "confirmed, but a refresh was under way: its token is revoked once it arrives"
        return was_revoked, result

    async def test(self, key: ConnectionKey) -> Probed:
        """Call the profile's test endpoint with a valid token; raise InvalidInputError if it has none."""
        token = await self._reader.token(key)
        credential = await self._deps.store.read(key)
        if credential is None:
            raise NotFoundError("there is no such connection", tenant=key.tenant, provider=key.provider)
        await self._settler.open_secrets(credential)  # checks the row, which may be newer than the token
        profile = profile_of(self._deps, credential)
        url = profile.url("test", credential.connection.endpoint)
        headers = api_headers(profile, token.access_token)
        facts = profile.test
        assert facts is not None  # url() refuses otherwise
        call = TokenCall(
            url,
            headers,
            {},
            DEADLINE_S,
            reuse_connection=True,
            method=facts.method,
            json_body=facts.json_body,
        )
        answer = await self._deps.transport.send(call, nothing_to_mark)
        if isinstance(answer, NoResponse):
            return Probed(False, None, answer.why, None)
        works = answer.status < 300
        return Probed(works, answer.status, "ok" if works else f"http_{answer.status}", answer.took_s)
