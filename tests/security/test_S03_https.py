"""S03: what holds secrets leaves by https with TLS verified; nothing in the product switches that off."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.engine.ports import NoResponse
from fairlead.errors import InvalidConfigError
from fairlead.policy.providers.profile_load import load_profiles
from tests.lint.tree import PACKAGE, Source, findings, planted
from tests.security.ways_out import METHODS, resolving, way_out

_OFF = {"verify", "ssl", "verify_ssl", "check_hostname", "verify_mode", "ssl_cert_reqs", "ssl_check_hostname"}
_WORDS = {"CERT_NONE", "CERT_OPTIONAL", "_create_unverified_context", "_create_default_https_context"}


def unverified(source: Source) -> Iterator[str]:
    """Every place that takes TLS without looking."""
    for node in ast.walk(source.tree()):
        if isinstance(node, ast.keyword) and node.arg in _OFF and _is_off(node.value):
            yield f"{source.path}:{node.value.lineno}: {node.arg} is off"
        elif isinstance(node, ast.Assign) and _is_off(node.value):
            targets = [target for target in node.targets if isinstance(target, ast.Attribute)]
            yield from (
                f"{source.path}:{node.lineno}: {attribute.attr} is off"
                for attribute in targets
                if attribute.attr in _OFF
            )
        elif isinstance(node, ast.Attribute) and node.attr in _WORDS:
            yield f"{source.path}:{node.lineno}: {node.attr}"


def _is_off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and (value.value is False or value.value in (0, "none", "NONE"))


def test_S03_nothing_takes_tls_unseen() -> None:
    assert findings(unverified, PACKAGE) == []


@pytest.mark.parametrize(
    "text",
    ["get(url, verify=False)", "TCPConnector(ssl=False)", "c.check_hostname = False", "c.verify_mode = 0",
     "ssl._create_unverified_context()", "c.verify_mode = ssl.CERT_NONE", "Redis(ssl_cert_reqs='none')"],
)  # fmt: skip
def test_S03_the_search_bites(text: str) -> None:
    assert len(planted(unverified, text)) >= 1


@pytest.mark.parametrize(
    "url", ["http://api.example.com/x", "http://api.example.com:443/x", "HTTP://api.example.com/"]
)
@pytest.mark.parametrize("method", METHODS)
async def test_S03_nothing_crosses_a_public_network_in_clear(
    method: str,
    url: str,
    dialled: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the profile allows: one for tests on one machine must not leak the secrets of a real one."""
    resolving(monkeypatch, ["8.8.8.8"])
    async with way_out(method) as ask:
        result = await ask(url)
    assert dialled == []
    if method == "webhook":
        assert isinstance(result, InvalidConfigError)
    else:
        assert result == NoResponse(
            sent=False, kind="refused_address", why="address refused: it is not https"
        )


def test_S03_each_built_in_address_is_https_at_its_port() -> None:
    for profile in load_profiles().values():
        for each_profile in (profile, *(profile.variant(name) for name in profile.variants)):
            assert not each_profile.allow_http
            urls = [
                each_profile.endpoints.token,
                each_profile.endpoints.authorize,
                *(api.url for api in each_profile.apis.values()),
            ]
            urls += [
                each_profile.revoke.url if each_profile.revoke else None,
                each_profile.test.url if each_profile.test else None,
            ]
            for url in filter(None, urls):
                assert url.startswith("https://"), each_profile.label
                assert ":" not in url.removeprefix("https://").partition("/")[0], each_profile.label
