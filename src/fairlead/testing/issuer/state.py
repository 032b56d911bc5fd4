"""The state of a running issuer: providers, grants, rules and clients.

Every change of a token family is made here, so that each is recorded in the ledger.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from random import Random

from fairlead._core.clock import Clock
from fairlead.errors import InvalidInputError
from fairlead.testing.issuer.assertion import ClientIdentity, read_key
from fairlead.testing.issuer.config import (
    PROVIDER_NAME,
    ConnectionConfig,
    IssuerConfig,
    ProviderConfig,
    Revocation,
)
from fairlead.testing.issuer.entries import LedgerRecorder
from fairlead.testing.issuer.families import Families, Family
from fairlead.testing.issuer.quirks import ActiveRules

_PREFIX = {"refresh": "rt_test_", "access": "at_test_"}


@dataclass(frozen=True, slots=True)
class IssuedGrant:
    """The state of one connection: its newest generation and tokens, and why it is revoked ("": it is not).

    *expires_in_s* is the remaining life of the newest access token.
    """

    provider: str
    connection: str
    generation: int
    refresh_token: str
    access_token: str
    expires_in_s: float
    scope: str
    account_id: str | int
    revoked: str


class IssuerState:
    """Providers, grants, rules and clients of one running issuer."""

    def __init__(self, config: IssuerConfig, clock: Clock, recorder: LedgerRecorder) -> None:
        self.clock, self.recorder = clock, recorder
        self.providers: dict[str, ProviderConfig] = {}
        self.invalid_clients = set(config.invalid_clients)
        self.rules = ActiveRules(Random(f"{config.seed}:rules"))
        self._tokens = Random(f"{config.seed}:tokens")
        self._lifetimes = Random(f"{config.seed}:lives")
        self._clients: dict[tuple[str, str], ClientIdentity] = {}
        self._revocations: list[tuple[float, Revocation]] = []
        self.families = Families(lambda kind: f"{_PREFIX[kind]}{self._tokens.getrandbits(128):032x}")

    def fill(self, config: IssuerConfig) -> None:
        """Register everything in *config*; called once, when the ledger has started."""
        now = self.clock.monotonic()
        self.providers.update(config.providers)
        for connection in config.connections:
            self.register(connection)
        for rule in config.rules:
            self.rules.add(rule, now)
        self._revocations = sorted(((now + r.after_s, r) for r in config.revocations), key=lambda due: due[0])
        for _, revocation in self._revocations:
            self.family(revocation.provider, revocation.connection)

    # ---- grants ----------------------------------------------------------------------------------

    def register(self, connection: ConnectionConfig, change: str = "registered") -> IssuedGrant:
        """Give *connection* its first tokens, or new ones if it is known (its old grant is revoked)."""
        provider = self.provider(connection.provider)
        account = connection.account_id
        if account is None:
            account = 100_000_000 + zlib.crc32(f"{connection.provider}/{connection.connection}".encode())
        self._check_token(connection)
        previous = self.families.family(connection.provider, connection.connection)
        if previous is not None and not previous.revoked:
            self.revoke_family(previous, "reconnected")
        now = self.clock.monotonic()
        family = self.families.register(
            Family(connection.provider, connection.connection, provider.rules, connection.scope, account),
            now=now,
            ttl_s=self.lifetime_s(provider) if connection.expires_in_s is None else connection.expires_in_s,
            texts=(connection.refresh_token, connection.access_token),
        )
        self._add_client(connection)
        self.recorder.registered(family, change)
        return self._grant(family, now)

    def _check_token(self, connection: ConnectionConfig) -> None:
        """Refuse a token that another connection has: the ledger could not distinguish them."""
        generation = self.families.find(connection.refresh_token)
        if generation is not None and generation.family.connection != connection.connection:
            raise InvalidInputError(
                f"test issuer: the refresh token of {connection.connection!r} belongs to another connection",
                provider=connection.provider,
                hint="give each connection its own, or none",
            )

    def _add_client(self, connection: ConnectionConfig) -> None:
        client_id = connection.client_id or connection.connection
        key = None if connection.public_key is None else read_key(connection.public_key)
        client = ClientIdentity(connection.connection, client_id, key)
        for name in (connection.connection, client_id):
            self._clients[connection.provider, name] = client

    def client(self, provider: str, *names: object) -> ClientIdentity | None:
        """Return the client of the first known name among *names* (subject, issuer, client id), or None."""
        clients = (self._clients.get((provider, name)) for name in names if isinstance(name, str))
        return next((client for client in clients if client is not None), None)

    def revoke(self, provider: str, connection: str, reason: str = "revoked") -> None:
        """Withdraw a grant: all its tokens are dead, and refreshes are answered with invalid_grant."""
        self.revoke_family(self.family(provider, connection), reason)

    def revoke_family(self, family: Family, reason: str) -> None:
        """Withdraw the grant of *family*."""
        self.families.revoke(family, reason)
        self.recorder.revoked(family, reason)

    def run_script(self, now: float) -> None:
        """Apply the revocations that are due; called at each request."""
        while self._revocations and self._revocations[0][0] <= now:
            _, due = self._revocations.pop(0)
            self.revoke(due.provider, due.connection, "scripted")

    def grant(self, provider: str, connection: str) -> IssuedGrant:
        """Return the state of a connection."""
        return self._grant(self.family(provider, connection), self.clock.monotonic())

    def grants(self) -> list[IssuedGrant]:
        """Return the state of every connection."""
        now = self.clock.monotonic()
        return [self._grant(family, now) for family in self.families.all()]

    def _grant(self, family: Family, now: float) -> IssuedGrant:
        newest = family.current
        return IssuedGrant(
            provider=family.provider,
            connection=family.connection,
            generation=newest.number,
            refresh_token=newest.text,
            access_token=newest.access.text,
            expires_in_s=rounded_s(max(0.0, newest.access.expires_at - now)),
            scope=family.scope,
            account_id=family.account_id,
            revoked=family.revoked,
        )

    # ---- settings --------------------------------------------------------------------------------

    def play(self, name: str, provider: ProviderConfig) -> None:
        """Add *provider* under *name*, or replace it; existing grants keep their policy."""
        if re.fullmatch(PROVIDER_NAME, name) is None:
            raise InvalidInputError(
                "test issuer: this is no provider name", provider=name, hint=PROVIDER_NAME
            )
        self.providers[name] = provider

    def refuse_client(self, client_id: str, on: bool) -> None:
        """Answer ``invalid_client`` to this client id, or stop doing so."""
        if on:
            self.invalid_clients.add(client_id)
        else:
            self.invalid_clients.discard(client_id)

    # ---- look-ups --------------------------------------------------------------------------------

    def provider(self, name: str) -> ProviderConfig:
        """Return the provider of this name; raise InvalidInputError if there is none."""
        provider = self.providers.get(name)
        if provider is None:
            raise InvalidInputError(
                "test issuer: this provider is not configured",
                provider=name,
                hint=f"configured: {', '.join(sorted(self.providers)) or 'none'}",
            )
        return provider

    def family(self, provider: str, connection: str) -> Family:
        """Return the newest grant of a connection; raise InvalidInputError if there is none."""
        family = self.families.family(provider, connection)
        if family is None:
            raise InvalidInputError(
                f"test issuer: the connection {connection!r} is not registered",
                provider=provider,
                hint="register it first",
            )
        return family

    def lifetime_s(self, provider: ProviderConfig) -> float:
        """Return the life of the next access token in seconds."""
        if not isinstance(provider.ttl_s, tuple):
            return rounded_s(provider.ttl_s)
        low, high = provider.ttl_s
        if low.is_integer() and high.is_integer():
            return self._lifetimes.randint(int(low), int(high))
        return rounded_s(self._lifetimes.uniform(low, high))


def rounded_s(seconds: float) -> float:
    """Return seconds as a provider writes them: a whole number if they are one, else to the millisecond."""
    return int(seconds) if float(seconds).is_integer() else round(seconds, 3)
