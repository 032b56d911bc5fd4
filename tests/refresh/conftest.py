"""An issuer that plays each replay policy, and a process that refreshes there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.adapters.postgres.database import Database
from fairlead.policy.providers.profile import Profile
from fairlead.testing.issuer import Issuer, IssuerConfig, ProviderConfig
from fairlead.testing.issuer.families import Policy
from tests.support.refresher import Refresher, local_profile, refresher

POLICIES: dict[str, dict[str, object]] = {
    "strict": {},
    "strict_family_revoke": {},
    "grace": {"grace_s": 120.0},
    "until_successor_used": {},
    "stable": {},
}
SAME = "same-again"
"""Who presents a spent token gets the successor that there is."""

HASTY = "hasty"
"""Its tokens live shorter than its profile says."""


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    providers = {
        policy.replace("_", "-"): ProviderConfig(policy=policy, ttl_s=3600.0, **more)  # type: ignore[arg-type]
        for policy, more in POLICIES.items()
    }
    providers[SAME] = ProviderConfig(policy=Policy.UNTIL_SUCCESSOR_USED, on_replay="same", ttl_s=3600.0)
    providers[HASTY] = ProviderConfig(policy=Policy.STABLE, ttl_s=600.0)
    async with Issuer(IssuerConfig(providers=providers)) as issuer:
        yield issuer


@pytest.fixture
def profiles(issuer: Issuer) -> dict[str, Profile]:
    profiles = {
        policy.replace("_", "-"): local_profile(
            issuer.url, policy, policy.replace("_", "-"), replay=more, rotates=policy != "stable"
        )
        for policy, more in POLICIES.items()
    }
    return profiles | {
        SAME: local_profile(issuer.url, "until_successor_used", SAME),
        HASTY: local_profile(issuer.url, "stable", HASTY, rotates=False),
    }


@pytest.fixture
async def fl(database: Database, profiles: dict[str, Profile], tmp_path: Path) -> AsyncIterator[Refresher]:
    async with refresher(database, profiles, tmp_path / "journal") as process:
        yield process


@pytest.fixture
async def peer(database: Database, profiles: dict[str, Profile], tmp_path: Path) -> AsyncIterator[Refresher]:
    """A second process on the same host."""
    async with refresher(database, profiles, tmp_path / "journal") as process:
        yield process
