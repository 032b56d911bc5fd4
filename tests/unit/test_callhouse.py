"""How calls of a connection are made is derived once for all connections that say the same."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from fairlead.assembly.calls import CallComponents
from fairlead.assembly.config import load
from fairlead.assembly.providers import ProfileRegistry
from fairlead.engine.ports import Connection, ConnectionKey
from fairlead.errors import InvalidConfigError

PATTERN = {
    "name": "mine",
    "http_codes": ["4xx"],
    "patterns": ["sold out"],
    "strategy": "constant",
}


@pytest.fixture
def rooms() -> CallComponents:
    nobody: Any = SimpleNamespace(call_admitter=None, bulks=None)
    return CallComponents(
        nobody,
        nobody,
        ProfileRegistry(load({}).settings).profile,
        transport=nobody,
        clock=nobody,
        epoch_s=lambda: 0.0,
        draw=lambda: 0.0,
        emit=lambda _event: None,
    )


def connection(
    tenant: str, settings: Mapping[str, Any], *, provider: str = "shopify", variant: str | None = None
) -> Connection:
    return cast(
        Connection,
        SimpleNamespace(
            connection_id=uuid4(),
            key=ConnectionKey(tenant, provider),
            variant=variant,
            endpoint={"shop": tenant},
            settings=settings,
            version=1,
        ),
    )


def test_connections_that_say_nothing_of_their_calls_share_their_rules(rooms: CallComponents) -> None:
    ours = rooms.config_for(connection("acme", {"concurrency_limit": 3}))
    theirs = rooms.config_for(connection("other", {}))
    assert ours.rules is theirs.rules
    assert ours.settings is theirs.settings
    assert ours.origins.host_of("https://other.myshopify.com/") is None
    assert theirs.origins.host_of("https://other.myshopify.com/") == "other.myshopify.com"


def test_settings_of_a_connection_are_its_own(rooms: CallComponents) -> None:
    plain = rooms.config_for(connection("acme", {}))
    patient = rooms.config_for(connection("acme", {"max_retries": 9}))
    ruled = [rooms.config_for(connection(tenant, {"patterns": [PATTERN]})) for tenant in ("acme", "other")]
    assert (plain.settings.max_retries, patient.settings.max_retries) == (3, 9)
    assert plain.rules.max_retries == 3
    assert ruled[0].rules.levels[0].origin == "the connection"
    assert plain.rules.levels[0].origin != "the connection"
    assert ruled[0].rules is ruled[1].rules


def test_another_provider_or_variant_has_others(rooms: CallComponents) -> None:
    kinds = [("shopify", None), ("shopify", "online"), ("stripe", None)]
    configs = [rooms.config_for(connection("acme", {}, provider=name, variant=kind)) for name, kind in kinds]
    assert len({id(config.rules) for config in configs}) == 3
    assert configs[1].rules.levels != configs[2].rules.levels


def test_invalid_settings_are_refused_with_the_tenants_name(rooms: CallComponents) -> None:
    for tenant in ("acme", "other"):
        with pytest.raises(InvalidConfigError) as raised:
            rooms.config_for(connection(tenant, {"max_retries": -1}))
        assert raised.value.tenant == tenant
