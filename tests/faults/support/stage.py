"""What every experiment stands on: a rude issuer, a database of its own, processes, and eyes on both."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from fairlead.adapters.postgres.database import Database
from fairlead.testing.issuer import Issuer, IssuerConfig, ProviderConfig
from fairlead.testing.ledger import LedgerVerdict, judge
from tests.faults.support.child import Child
from tests.faults.support.nursery import Nursery
from tests.faults.support.worker import fingerprint
from tests.support.rows import rows, run
from tests.support.standstill import patience

POLICIES: dict[str, dict[str, Any]] = {
    "strict": {"policy": "strict"},
    "strict-family-revoke": {"policy": "strict_family_revoke"},
    "grace": {"policy": "grace", "grace_s": 600.0},
    "grace-short": {"policy": "grace", "grace_s": 10.0},
    "until-successor-used": {"policy": "until_successor_used"},
    "stable": {"policy": "stable"},
}
FAMILY = "strict-family-revoke"  # the harshest: one replay, and the customer has to come
MASTER = base64.b64encode(bytes(range(32))).decode()
QUICK = {"cooldown_s": 0.0, "not_sent_delays_s": [0.05, 0.1], "breaker_failures": 10_000}
TTL_S = 3600.0
LOOK_S = 0.005

PROFILE = """
name = "{name}"
title = "{name}"
strategy = "refresh_token"
allow_http = true
hosts = ["127.0.0.1"]
ttl_default_s = 3600.0
rotates = {rotates}
endpoints = {{ token = "{url}/{name}/token" }}
replay = {{ {replay} }}
rate = {{ limit = 1000000, window_s = 1.0 }}
account = {{ field = "account_id" }}
"""


async def until(true: Callable[[], Awaitable[object]], condition: str, within_s: float = 60.0) -> None:
    """Return as soon as the awaited ``true()`` is; fail after *within_s*."""
    try:
        async with patience(within_s):
            while not await true():
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(f"after {within_s:g} s still not: {condition}") from None


@dataclass
class Stage:
    """Made by `staged`."""

    nursery: Nursery
    issuer: Issuer
    database: Database
    folder: Path
    children: list[Child] = field(default_factory=list)
    _numbers: Any = field(default_factory=itertools.count)

    # ---- processes

    async def born(
        self,
        *,
        url: str | None = None,
        issuer_url: str | None = None,
        numbers: dict[str, Any] | None = None,
        worker: dict[str, Any] | None = None,
        **order: Any,
    ) -> Child:
        """A process. *url* leads to the database another way, *issuer_url* to the issuer; *numbers* as in
        RefreshSettings; *order* as support/worker.py and support/unsafe.py read it."""
        number = next(self._numbers)
        log = self.folder / f"child-{number}.log"
        settings = self._settings(url, worker or {})
        if issuer_url is not None:
            settings["providers_dir"] = str(_profiles(self.folder / f"profiles-{number}", issuer_url))
        filters = {
            "settings": settings,
            "numbers": QUICK | (numbers or {}),
            "log": str(log),
        }
        child = Child(self.nursery, filters | order)
        self.children.append(child)
        await child.begin()
        return child

    async def all_born(self, count: int, **order: Any) -> list[Child]:
        """*count* of them."""
        return list(await asyncio.gather(*(self.born(**order) for _ in range(count))))

    def _settings(self, url: str | None, worker: dict[str, Any]) -> dict[str, Any]:
        return {
            "home": str(self.folder / "home"),
            "database": {
                "url": url or self.database.settings.dsn,
                "schema_name": self.database.settings.schema,
                "pool_size": 4,
            },
            "vault": {"master_key": f"test:{MASTER}"},
            "http": {"allow_private_addresses": True},
            "worker": {"poll_s": 0.2, "lease_s": 5.0} | worker,
            "schedules": {"refresh_scan": "@every 1s", "urgent_scan": "@every 1s"},
            "providers_dir": str(self.folder / "profiles"),
            "providers": {name: {"client_id": "app", "client_secret": "app-secret"} for name in POLICIES},
        }

    async def connect(self, child: Child, provider: str, names: list[str]) -> list[str]:
        """Register *names* at the issuer and through *child*; the connections' ids."""
        grants = [self.issuer.register(provider, name, account_id=f"account-{name}") for name in names]
        token_grants = [
            {"connection": g.connection, "access_token": g.access_token, "refresh_token": g.refresh_token}
            for g in grants
        ]
        return list((await child.ask("connect", provider=provider, grants=token_grants))["ids"])

    # ---- truth

    async def look_again(self) -> None:
        """Open the eyes on the database anew: its server was away."""
        await self.database.close()
        self.database = await Database.open(self.database.settings)

    def verdict(self, provider: str | None = None) -> LedgerVerdict:
        """What the issuer's ledger says. It does not know of `expire`, so any look at expiry is let pass."""
        return judge(self.issuer.ledger(), provider=provider, expiry_leeway_s=TTL_S)

    def live_token(self, provider: str, name: str) -> str:
        """The fingerprint of the access token that the issuer gave last."""
        return fingerprint(self.issuer.grant(provider, name).access_token)

    async def rows(self, sql: str, *args: object) -> list[dict[str, Any]]:
        return await rows(self.database, sql, *args)

    async def run(self, sql: str, *args: object) -> None:
        await run(self.database, sql, *args)

    async def credentials(self) -> dict[str, dict[str, Any]]:
        """Each connection's state, reason and generation, by tenant and provider."""
        rows_found = await self.rows(
            "SELECT c.tenant_id || ' ' || c.provider AS name, cr.state, cr.state_reason AS reason,"
            " cr.generation FROM credential cr JOIN connection c USING (connection_id)"
        )
        return {row.pop("name"): row for row in rows_found}

    async def generation(self, connection: str) -> int:
        """What stands in the database."""
        rows_found = await self.rows(
            "SELECT generation FROM credential WHERE connection_id = $1", UUID(connection)
        )
        return int(rows_found[0]["generation"])

    async def windows_s(self, journaled: Path) -> list[float]:
        """From each rotation at the issuer to its answer on our disk: what a death costs (P6)."""
        lines = [json.loads(line) for line in journaled.read_text().splitlines()]
        on_disk = {(line["connection"], line["generation"]): line["t"] for line in lines}
        ids = await self.rows("SELECT tenant_id, provider, connection_id::text AS id FROM connection")
        by_name = {(row["provider"], row["tenant_id"]): row["id"] for row in ids}
        spent = {
            (by_name[rotation.provider, rotation.connection], rotation.generation): rotation.t_processed
            for rotation in self.verdict().rotations
        }
        return [on_disk[key] - spent[key] for key in on_disk.keys() & spent.keys()]

    async def expire(self, connections: Iterable[str]) -> None:
        """The access tokens of these are dead from here on."""
        ids = [UUID(connection) for connection in connections]
        sql = "UPDATE credential SET expires_at = now() - interval '1 second' WHERE connection_id = ANY($1)"
        await self.run(sql, ids)

    async def end_sends(self, connections: Iterable[str], deadline_s: float = 15.0) -> None:
        """One request deadline goes by for these: what was sent can be processed no longer."""
        ids = [UUID(connection) for connection in connections]
        times = ", ".join(f"{at} = {at} - $2 * interval '1 second'" for at in ("started_at", "sent_at"))
        await self.run(f"UPDATE refresh_attempt SET {times} WHERE connection_id = ANY($1)", ids, deadline_s)


@asynccontextmanager
async def staged(nursery: Nursery, database: Database, folder: Path) -> AsyncIterator[Stage]:
    """A stage; whatever process still lives at its end is killed."""
    providers = {name: ProviderConfig(ttl_s=TTL_S, **policy) for name, policy in POLICIES.items()}
    async with Issuer(IssuerConfig(providers=providers)) as issuer:
        _profiles(folder / "profiles", issuer.url)
        stage = Stage(nursery, issuer, database, folder)
        try:
            yield stage
        finally:
            for child in stage.children:
                await child.kill()


def _profiles(folder: Path, url: str) -> Path:
    """A folder with a profile for each policy, of an issuer at *url*."""
    folder.mkdir(exist_ok=True)
    for name, policy in POLICIES.items():
        replay = ", ".join(
            f'{key} = "{v}"' if isinstance(v, str) else f"{key} = {v}" for key, v in policy.items()
        )
        rotates = str(policy["policy"] != "stable").lower()
        text = PROFILE.format(name=name, url=url, replay=replay, rotates=rotates)
        (folder / f"{name}.toml").write_text(text)
    return folder
