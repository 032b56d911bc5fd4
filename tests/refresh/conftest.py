"""An issuer that plays each replay policy, and a process that refreshes there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.adapters.postgres.pool import Database
from fairlead.policy.profile import Profile
from fairlead.testing.issuer import Issuer, IssuerConfig, ProviderConfig
from tests.support.refresher import Refresher, local_profile, refresher

POLICIES: dict[str, dict[str, object]] = {
    "strict": {},
    "strict_family_revoke": {},
    "grace": {"grace_s": 120.0},
    "until_successor_used": {},
    "stable": {},
}


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    providers = {
        policy.replace("_", "-"): ProviderConfig(policy=policy, ttl_s=3600.0, **more)  # type: ignore[arg-type]
        for policy, more in POLICIES.items()
    }
    async with Issuer(IssuerConfig(providers=providers)) as issuer:
        yield issuer


@pytest.fixture
def profiles(issuer: Issuer) -> dict[str, Profile]:
    return {
        policy.replace("_", "-"): local_profile(
            issuer.url, policy, policy.replace("_", "-"), replay=more, rotates=policy != "stable"
        )
        for policy, more in POLICIES.items()
    }


@pytest.fixture
async def fl(database: Database, profiles: dict[str, Profile], tmp_path: Path) -> AsyncIterator[Refresher]:
    async with refresher(database, profiles, tmp_path / "journal") as one:
        yield one


@pytest.fixture
async def peer(database: Database, profiles: dict[str, Profile], tmp_path: Path) -> AsyncIterator[Refresher]:
    """A second process on the same host."""
    async with refresher(database, profiles, tmp_path / "journal") as one:
        yield one
