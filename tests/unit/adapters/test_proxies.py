"""Which hosts go around the proxies of the environment."""

from __future__ import annotations

import pytest

from fairlead.adapters.http.client_session import Proxies


@pytest.mark.parametrize(
    ("host", "is_direct"),
    [
        ("10.1.2.3", True),
        ("11.1.2.3", False),
        ("192.168.7.9", True),
        ("fd00::5", True),
        ("fe80::5", False),
        ("203.0.113.7", True),
        ("api.internal.example", True),
        ("api.example.com", False),
        ("10.1.2.3.example.com", False),
    ],
)
def test_networks_of_no_proxy_are_reached_directly(
    monkeypatch: pytest.MonkeyPatch, host: str, is_direct: bool
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    words = "10.0.0.0/8, 192.168.0.0/16 ,[fd00::]/8,fd00::/8,203.0.113.7,.internal.example,10.0.0.0/99,"
    monkeypatch.setenv("NO_PROXY", words)
    monkeypatch.setenv("no_proxy", words)
    assert (Proxies(True).proxy_of("https", host) is None) is is_direct
    assert Proxies(False).proxy_of("https", host) is None
