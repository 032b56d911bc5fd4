"""Requests to a provider about one connection that are no refresh: end its grant, see whether it works."""

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
    """What the provider's test endpoint said. *status* None: no answer, for the reason in *why*."""

    works: bool
    status: int | None
    why: str
    took_s: float | None


class Accounts:
    """Ends grants at the provider and tries connections."""

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

        First here, so that from now on nothing refreshes or serves it. Only revoking the newest token is
        "confirmed". The process that receives the response of a refresh under way revokes its token.

        Returns:
            Whether the connection was not revoked before, and the provider's answer in words.
        """
        previous = await self._deps.store.read(key)
        if previous is None:
            raise NotFoundError("there is no such connection", tenant=key.tenant, provider=key.provider)
        news = await self._connections.revoke(key, actor=actor, reason=reason)
        self._reader.forget(key)
        now = await self._deps.store.read(key) or previous
        try:
            stored = await self._settler.stored(now)
        except FairleadError as unreadable:
            return news, f"not asked: {unreadable.message}"
        result = await end_grant(self._deps, self._grants, now, stored)
        if result == CONFIRMED and previous.rotation is not None and previous.rotation.phase != "intent":
            return news, "confirmed, but a refresh was under way: its token is revoked once it arrives"
        return news, result

    async def test(self, key: ConnectionKey) -> Probed:
        """Call the profile's test endpoint with a valid token; InvalidInputError where the profile has none."""
        token = await self._reader.token(key)
        credential = await self._deps.store.read(key)
        if credential is None:
            raise NotFoundError("there is no such connection", tenant=key.tenant, provider=key.provider)
        await self._settler.stored(credential)  # the token may be older than the row: it fits, or is not sent
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
