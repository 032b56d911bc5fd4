"""Requests to a provider about one connection that are no refresh: end its grant, see whether it works."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.engine.connections import Connections
from fairlead.engine.ports import ConnectionKey, Credential, HttpAnswer, NoAnswer, TokenCall
from fairlead.engine.token.grants import Grants
from fairlead.engine.token.lending import check_lent
from fairlead.engine.token.parts import Rooms, profile_of
from fairlead.engine.token.reader import TokenReader
from fairlead.engine.token.settle import Settler
from fairlead.errors import ConfigInvalid, InputInvalid, NotFound
from fairlead.policy.token_request import Client, TokenRequest, api_headers, revoke_request

DEADLINE_S = 15.0


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
        self, rooms: Rooms, grants: Grants, settler: Settler, reader: TokenReader, connections: Connections
    ) -> None:
        self._rooms = rooms
        self._grants = grants
        self._settler = settler
        self._reader = reader
        self._connections = connections

    async def revoke(self, key: ConnectionKey, *, actor: str, reason: str) -> tuple[bool, str]:
        """Revoke here, then at the provider: was it news here, and what became of it there.

        Here first: nothing may refresh or serve it from the moment somebody asked. What the provider does
        not confirm is told in the words of the second value.
        """
        credential = await self._rooms.store.read(key)
        if credential is None:
            raise NotFound("there is no such connection", tenant=key.tenant, provider=key.provider)
        news = await self._connections.revoke(key, actor=actor, reason=reason)
        self._reader.forget(key)
        return news, await self._revoke_there(credential)

    async def _revoke_there(self, credential: Credential) -> str:
        profile = profile_of(self._rooms, credential)
        stored = await self._settler.stored(credential)
        app = self._grants.app(credential, stored)
        try:
            if profile.revoke is not None and profile.revoke.authenticates == "client":
                endpoint, key = credential.connection.endpoint, credential.connection.key
                check_lent(profile, "revoke", endpoint, app, key, stored)
            client = Client(app.client_id, app.client_secret)
            request = revoke_request(profile, credential.connection.endpoint, client, stored.tokens)
        except (InputInvalid, ConfigInvalid) as none:
            return f"not asked: {none.what}"
        answer = await self._send(request)
        if isinstance(answer, NoAnswer):
            return f"no answer: {answer.why}"
        return "confirmed" if answer.status < 300 else f"answered {answer.status}"

    async def test(self, key: ConnectionKey) -> Probed:
        """Call the profile's test endpoint with a valid token; InputInvalid where the profile has none."""
        token = await self._reader.token(key)
        credential = await self._rooms.store.read(key)
        if credential is None:
            raise NotFound("there is no such connection", tenant=key.tenant, provider=key.provider)
        await self._settler.stored(credential)  # the token may be older than the row: it fits, or is not sent
        profile = profile_of(self._rooms, credential)
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
        answer = await self._rooms.transport.send(call, _nothing_to_mark)
        if isinstance(answer, NoAnswer):
            return Probed(False, None, answer.why, None)
        works = answer.status < 300
        return Probed(works, answer.status, "ok" if works else f"http_{answer.status}", answer.took_s)

    async def _send(self, request: TokenRequest) -> HttpAnswer | NoAnswer:
        call = TokenCall(
            request.url,
            request.headers,
            request.form,
            DEADLINE_S,
            reuse_connection=True,
            method=request.method,
        )
        return await self._rooms.transport.send(call, _nothing_to_mark)


async def _nothing_to_mark() -> None:
    """Neither revoking nor testing spends anything."""
