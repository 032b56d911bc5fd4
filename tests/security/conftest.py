"""Two issuers that know nothing of each other, a process that asks there for consent, the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.adapters.postgres.database import Database
from fairlead.policy.providers.profile import Profile
from fairlead.testing.issuer import Issuer, IssuerConfig, ProviderConfig
from tests.e2e.conftest import bare, shell, spawner  # noqa: F401 - pytest looks for them here
from tests.security.ways_out import dialled  # noqa: F401 - as above
from tests.support.refresher import Refresher, local_profile, refresher

PROVIDERS = ("one", "two")
"""The first plays at the honest issuer, the second at the other."""


async def _issuer() -> AsyncIterator[Issuer]:
    providers = {name: ProviderConfig(ttl_s=3600.0) for name in PROVIDERS}
    async with Issuer(IssuerConfig(providers=providers)) as issuer:
        yield issuer


honest = pytest.fixture(_issuer, name="honest")
other = pytest.fixture(_issuer, name="other")


@pytest.fixture
def profiles(honest: Issuer, other: Issuer) -> dict[str, Profile]:
    urls = dict(zip(PROVIDERS, (honest.url, other.url), strict=True))
    return {
        name: local_profile(
            url,
            name=name,
            endpoints={"token": f"{url}/{name}/token", "authorize": f"{url}/{name}/authorize"},
        )
        for name, url in urls.items()
    }


@pytest.fixture
async def fl(database: Database, profiles: dict[str, Profile], tmp_path: Path) -> AsyncIterator[Refresher]:
    async with refresher(database, profiles, tmp_path / "journal") as first:
        yield first
