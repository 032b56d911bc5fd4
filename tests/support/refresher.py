"""One fairlead process' worth of refreshing, wired from the real parts: store, vault, journal, wire.

Two of them over one database are two processes, from the view of the database. Each may be killed, which
drops it without a shutdown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from fairlead._core.secret import Secret
from fairlead.adapters.http import AddressPolicy, AiohttpTokenTransport
from fairlead.adapters.journal import FileJournal
from fairlead.adapters.local.system import SystemClock, SystemIds
from fairlead.adapters.postgres.credentials import PostgresCredentialStore
from fairlead.adapters.postgres.data_keys import PostgresKeyStore
from fairlead.adapters.postgres.database import Database
from fairlead.adapters.postgres.endpoints import PostgresEndpointGate
from fairlead.adapters.vault import MasterKey, MasterKeyring, TenantVault
from fairlead.adapters.vault.assertion_signer import JoseSigner
from fairlead.engine.ports import ConnectionKey, TokenTransport
from fairlead.engine.tokens.connection_grant import Grant
from fairlead.engine.tokens.connections import Connections
from fairlead.engine.tokens.coordinator import Coordinator
from fairlead.engine.tokens.deps import AppCredential, RefreshDeps, RefreshSettings
from fairlead.engine.tokens.grants import Grants
from fairlead.engine.tokens.reader import TokenReader
from fairlead.engine.tokens.request_sender import RefreshRequestSender
from fairlead.engine.tokens.settle import Settler
from fairlead.engine.tokens.unknown_outcomes import UnknownOutcomes
from fairlead.errors import ProviderNotFoundError
from fairlead.events import Event
from fairlead.policy.providers.profile import Profile
from tests.support.altered import Altered
from tests.support.passing_time import pass_time
from tests.support.rows import run

FAST = RefreshSettings(
    request_deadline_s=2.0,
    total_deadline_s=6.0,
    lease_s=5.0,
    not_sent_delays_s=(0.01, 0.02),
    cooldown_s=0.0,
    min_remaining_s=60.0,
    wait_s=5.0,
    settle_retry_s=0.02,
    retry_dead_after_s=1.0,
    backoff_s=0.2,
)
MASTER = bytes(range(32))
APP = AppCredential("app", Secret("app-secret"), fingerprint="f1")


class FixedApps:
    """One app for all providers; change ``credential`` to rotate its secret."""

    def __init__(self, credential: AppCredential = APP) -> None:
        self.credential = credential

    def app(self, provider: str, client_id: str) -> AppCredential:
        return self.credential


class FixedProfiles:
    """Built-in profiles with a token endpoint of the test's."""

    def __init__(self, profiles: dict[str, Profile]) -> None:
        self.profiles = profiles

    def profile(self, provider: str, variant: str | None) -> Profile:
        if provider not in self.profiles:
            raise ProviderNotFoundError("there is no profile of this name", provider=provider)
        return self.profiles[provider].variant(variant)


def local_profile(url: str, policy: str = "strict", name: str = "local", **more: object) -> Profile:
    """Return a profile of the provider *name* at a local issuer, with a replay policy; *more* as in TOML."""
    replay = {"policy": policy, **dict(more.pop("replay", {}))}  # type: ignore[call-overload]
    return Profile.model_validate(
        {
            "name": name,
            "title": name,
            "strategy": "refresh_token",
            "allow_http": True,
            "endpoints": {"token": f"{url}/{name}/token"},
            "ttl_default_s": 3600.0,
            "replay": replay,
            "rate": {"limit": 1_000_000, "window_s": 1.0},
            "account": {"field": "account_id"},
            **more,
        }
    )


@dataclass
class Refresher:
    """The refresh parts of one process. *events* holds everything it emitted."""

    deps: RefreshDeps
    coordinator: Coordinator
    reader: TokenReader
    connections: Connections
    unknown: UnknownOutcomes
    settler: Settler
    session_id: UUID
    events: list[Event] = field(default_factory=list)

    def told(self, kind: type[Event]) -> list[Event]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    async def connect(self, issuer: object, provider: str, name: str = "acme", **grant: object) -> UUID:
        """Register *name* at the issuer and here; gives the connection's id."""
        tokens = issuer.register(provider, name, account_id=f"account-{name}")  # type: ignore[attr-defined]
        new_grant = Grant(
            access_token=Secret(tokens.access_token),
            refresh_token=Secret(tokens.refresh_token),
            expires_in_s=3600.0,
        )
        key = ConnectionKey(name, provider)
        view = await self.connections.upsert(key, replace(new_grant, **grant), actor="test")  # type: ignore[arg-type]
        return view.connection_id


async def end_sends(database: Database) -> None:
    """Advance one request deadline, after which a sent request is no longer processed and may be repeated."""
    await pass_time(database, FAST.request_deadline_s)


@asynccontextmanager
async def refresher(
    database: Database,
    profiles: dict[str, Profile],
    folder: Path,
    *,
    settings: RefreshSettings = FAST,
    apps: FixedApps | None = None,
    transport: TokenTransport | None = None,
    lease_s: float = 30.0,
) -> AsyncIterator[Refresher]:
    """Return a process with its own session over *database* and a journal in *folder*."""
    async with AsyncExitStack() as stack:
        ids, clock, session_id = SystemIds(), SystemClock(), SystemIds().uuid7()
        await run(
            database,
            "INSERT INTO worker_session (session_id, host, boot_id, pid_namespace, pid, process_started,"
            " version, lease) VALUES ($1, 'h', 'b', 'n', 1, '1', '0', $2 * interval '1 second')",
            session_id,
            lease_s,
        )
        store, gate = PostgresCredentialStore(database), PostgresEndpointGate(database)
        stack.push_async_callback(store.close)
        stack.push_async_callback(gate.close)
        journal = await stack.enter_async_context(FileJournal(folder, session_id))
        if transport is None:
            transport = AiohttpTokenTransport(policy=AddressPolicy(allow_private=True))
            stack.push_async_callback(transport.close)
        events: list[Event] = []
        deps = RefreshDeps(
            store=Altered(store),  # type: ignore[arg-type]
            vault=TenantVault(
                PostgresKeyStore(database), MasterKeyring([MasterKey(MASTER)]), clock=clock, ids=ids
            ),
            journal=Altered(journal),  # type: ignore[arg-type]
            transport=Altered(transport),  # type: ignore[arg-type]
            gate=gate,
            apps=apps or FixedApps(),
            profiles=FixedProfiles(profiles),
            signer=JoseSigner(),
            clock=Altered(clock),  # type: ignore[arg-type]
            draw=lambda: 0.0,
            ids=ids,
            emit=events.append,
            session_id=lambda: session_id,
            reauth_link=lambda key, connection_id: f"https://example.test/reconnect/{connection_id}",
        )
        settler = Settler(deps, settings.settle_retry_s)
        unknown = UnknownOutcomes(deps, settings, settler)
        sender = RefreshRequestSender(deps, settings, Grants(deps, settings), settler, unknown)
        coordinator = Coordinator(deps, settings, sender, settler, unknown)
        stack.push_async_callback(coordinator.drain, 5.0)
        reader = TokenReader(deps, coordinator, settler, 0.0)
        yield Refresher(deps, coordinator, reader, Connections(deps), unknown, settler, session_id, events)
