"""S02: on every way out the address itself is checked, once, all of them, and at each hop."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.adapters.http import AddressPolicy
from fairlead.adapters.http.resolver import AddressNotAllowedError
from fairlead.engine.ports import NoResponse
from fairlead.errors import InvalidConfigError, InvalidInputError, RequestRejectedError
from tests.contract.raw_server import RawServer, send_once
from tests.security.figures import tell
from tests.security.vectors import INNER, V9
from tests.security.ways_out import METHODS, resolving, way_out

LOCAL = AddressPolicy(allow_private=True)
PUBLIC = "8.8.8.8"


def is_refusal(result: object) -> bool:
    return isinstance(result, InvalidConfigError | InvalidInputError) or (
        isinstance(result, NoResponse) and not result.sent and result.kind in ("refused_address", "dns")
    )


async def test_S02_no_inner_address_is_dialled(dialled: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither as itself, nor behind a name, nor as one of several that a name leads to."""
    attempt_count = 0
    for method in METHODS:
        async with way_out(method) as ask:
            for address in INNER:
                results = [await ask(f"https://{f'[{address}]' if ':' in address else address}/x")]
                for addresses in ([address], [PUBLIC, address], [address, PUBLIC]):
                    resolving(monkeypatch, addresses)
                    results.append(await ask(f"https://name-{attempt_count}-{len(results)}.example.com/x"))
                assert all(map(is_refusal, results)), (method, address, results)
                assert address not in str(results)
                attempt_count += len(results)
    assert dialled == []
    tell("S02", n=attempt_count, dialled=len(dialled))


@pytest.mark.parametrize("method", METHODS)
async def test_S02_no_spelling_of_an_inner_address_is_dialled(
    method: str, dialled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wide digits and ideographic full stops make an address of what looks like none, and nobody is asked."""
    resolving(monkeypatch, ["127.0.0.1"])
    async with way_out(method) as ask:
        for host in filter(is_inner, V9):
            assert is_refusal(await ask(f"https://{host}/x")), host
    assert dialled == []


def is_inner(host: str) -> bool:
    """Whether *host* leads inside, or nowhere: without a label of somebody else's."""
    others = ("evil", "myshopify", "1.2.3.4", "1.0x7f")  # the last is 1.0.0.127
    return 0 < len(host) < 300 and not any(word in host for word in others)


@pytest.mark.parametrize("host", ["127.1", "0", "0x7f000001", "2130706433", "0177.0.0.1", "[::1]"])
def test_S02_the_policy_itself_knows_each_spelling(host: str) -> None:
    """Whatever the HTTP client of the day takes for an address, and does not ask a resolver about."""
    bare = host.strip("[]")
    assert AddressPolicy().origin_refusal("https", bare, 443) is not None
    with pytest.raises(AddressNotAllowedError):
        AddressPolicy().check_literal(bare)
    AddressPolicy().check_literal("0x7f000001.example.com")  # a name like others


@pytest.mark.parametrize("method", METHODS)
async def test_S02_a_name_is_looked_up_once(
    method: str,
    dialled: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rebinding: public when it is checked, inner when it is asked for again."""
    resolved = resolving(monkeypatch, [PUBLIC], ["127.0.0.1"])
    async with way_out(method) as ask:
        await ask("https://rebind.example.com/x")
        assert resolved == ["rebind.example.com"]
        assert dialled == [(PUBLIC, 443)]
        await ask("https://rebind.example.com/x")  # asked for again, or by what was found before
    assert {address for address, _ in dialled} == {PUBLIC}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", METHODS)
async def test_S02_no_redirect_is_followed(method: str, status: int) -> None:
    async with RawServer() as inner:
        for target in ("http://169.254.169.254/latest/meta-data/", inner.url):
            redirect = f"HTTP/1.1 {status} Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()
            async with RawServer(send_once(redirect)) as server, way_out(method, LOCAL) as ask:
                result = await ask(server.url)
                assert result == status or isinstance(result, RequestRejectedError)
                assert len(server.connections) == 1
        assert inner.connections == []


@pytest.mark.parametrize("method", METHODS)
async def test_S02_the_switch_for_tests_opens_no_metadata_service(method: str, dialled: list[Any]) -> None:
    async with way_out(method, LOCAL) as ask:
        for host in ("169.254.169.254", "[fd00:ec2::254]", "100.100.100.200", "[64:ff9b::169.254.169.254]"):
            assert is_refusal(await ask(f"http://{host}/x"))
    assert dialled == []
