"""S04: no value ends a header, adds one, or makes two requests of one; the upstream's own record says so."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

import pytest

from fairlead._core.secret import Secret
from fairlead.adapters.http import AddressPolicy, AiohttpTokenTransport, AiohttpTransport
from fairlead.engine.ports import HttpResponse, TokenCall
from fairlead.errors import FairleadError, InvalidInputError
from fairlead.policy.calls.soap_request import soap_headers
from fairlead.policy.providers.profile import Profile
from fairlead.policy.providers.profile_load import load_profiles
from fairlead.policy.tokens.request import OAuthClient, TokenRequest, api_headers, token_request
from tests.contract.calls import request_of
from tests.contract.raw_server import RawServer
from tests.contract.token_calls import let_it_go
from tests.security.figures import tell
from tests.security.vectors import ENDERS, V8

LOCAL = AddressPolicy(allow_private=True)
VALUES = tuple(dict.fromkeys([*V8, *ENDERS, *(f"ok{ender}x" for ender in ENDERS)]))
PROFILES = load_profiles()
USUAL = {"host", "accept", "accept-encoding", "user-agent", "content-length", "connection"}


def header_positions(value: str) -> Iterator[Mapping[str, str | Secret]]:
    """Headers of a call that *value* may come into."""
    yield {"x-tenant": value}
    yield {"authorization": Secret(f"Bearer {value}")}
    yield {value: "x"}
    for profile in PROFILES.values():
        try:
            yield api_headers(profile, Secret(value))
        except InvalidInputError:
            continue
    try:
        yield soap_headers(value)
        yield soap_headers(value, "1.2")
    except FairleadError:
        return


def is_one(arrival: bytes, names: set[str]) -> bool:
    """Whether a request is one, with no header but those that are known."""
    head = arrival.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    header_names = {line.partition(":")[0].lower() for line in head[1:]}
    return head[0].count("HTTP/1.1") == 1 and header_names <= names


async def test_S04_a_call_is_one_request() -> None:
    attempt_count, sent = 0, 0
    async with RawServer() as server, AiohttpTransport(policy=LOCAL) as transport:
        for value in VALUES:
            for headers in header_positions(value):
                attempt_count += 1
                arrivals_before = len(server.arrivals)
                try:
                    answer = await transport.send(request_of(server.url, headers=headers))
                except InvalidInputError:
                    assert len(server.arrivals) == arrivals_before
                    continue
                sent += 1
                assert isinstance(answer, HttpResponse)
                (arrival,) = server.arrivals[arrivals_before:]
                assert is_one(arrival, USUAL | {name.lower() for name in headers}), arrival
        assert len(server.arrivals) == sent
    assert attempt_count > sent > 0
    tell("S04", n=attempt_count, requests_too_many=len(server.arrivals) - sent)


@pytest.mark.parametrize("profile", [p for p in PROFILES.values() if p.strategy == "refresh_token"], ids=str)
async def test_S04_a_token_request_is_one_request(profile: Profile) -> None:
    """The app's id and secret, and the refresh token: in the header Authorization, or in the form."""
    endpoint = {name: param.default or str(param.example) for name, param in profile.endpoints.params.items()}
    async with RawServer() as server, AiohttpTokenTransport(policy=LOCAL) as transport:
        for value in VALUES:
            for client, token in (
                (OAuthClient(value, Secret("s")), Secret("rt")),
                (OAuthClient("id", Secret(value)), Secret("rt")),
                (OAuthClient("id", Secret("s")), Secret(value)),
            ):
                arrivals_before = len(server.arrivals)
                try:
                    request = token_request(profile, endpoint, client, refresh_token=token)
                except InvalidInputError:
                    continue
                await transport.send(call_of(request, server.url), let_it_go)
                (arrival,) = server.arrivals[arrivals_before:]
                assert arrival.count(b"HTTP/1.1\r\n") == 1
                assert is_one(arrival, USUAL | set(request.headers))


def call_of(request: TokenRequest, url: str) -> TokenCall:
    return TokenCall(url, request.headers, request.form, 5.0, reuse_connection=True)


def test_S04_basic_credentials_keep_their_colon() -> None:
    """An id with a colon must not move the border between id and secret (RFC 6749 §2.3.1)."""
    basic = next(p for p in PROFILES.values() if p.client_auth == "basic" and not p.endpoints.params)
    heads = set()
    for client in (OAuthClient("a:b", Secret("c")), OAuthClient("a", Secret("b:c"))):
        request = token_request(basic, {}, client, refresh_token=Secret("rt"))
        encoded = request.headers["authorization"].reveal().removeprefix("Basic ")
        heads.add(base64.b64decode(encoded))
    assert len(heads) == 2
