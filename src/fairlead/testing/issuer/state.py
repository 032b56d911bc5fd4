"""What the issuer knows and remembers while it runs: providers, grants, rules, clients, the ledger.

Every change of a token family is made here, so that none escapes the ledger.
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
    """One connection as it stands: its newest generation and tokens, and why it is revoked ("" = it
    lives). *expires_in_s* is what is left of the newest access token."""

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
    """The issuer's memory; one per running issuer."""

    def __init__(self, config: IssuerConfig, clock: Clock, entries: LedgerRecorder) -> None:
        self.clock, self.entries = clock, entries
        self.providers: dict[str, ProviderConfig] = {}
        self.invalid_clients = set(config.invalid_clients)
        self.rules = ActiveRules(Random(f"{config.seed}:rules"))
        self._tokens = Random(f"{config.seed}:tokens")
        self._lives = Random(f"{config.seed}:lives")
        self._speakers: dict[tuple[str, str], ClientIdentity] = {}
        self._revocations: list[tuple[float, Revocation]] = []
        self.families = Families(lambda kind: f"{_PREFIX[kind]}{self._tokens.getrandbits(128):032x}")

    def fill(self, config: IssuerConfig) -> None:
        """Take in all that *config* names; called once, when the ledger has begun."""
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

    def register(self, wanted: ConnectionConfig, change: str = "registered") -> IssuedGrant:
        """Give *wanted* its first tokens, or new ones when the connection is known (its old grant dies)."""
        provider = self.provider(wanted.provider)
        account = wanted.account_id
        if account is None:
            account = 100_000_000 + zlib.crc32(f"{wanted.provider}/{wanted.connection}".encode())
        self._check_token(wanted)
        before = self.families.family(wanted.provider, wanted.connection)
        if before is not None and not before.revoked:
            self.revoke_family(before, "reconnected")
        now = self.clock.monotonic()
        family = self.families.register(
            Family(wanted.provider, wanted.connection, provider.rules, wanted.scope, account),
            now=now,
            ttl_s=self.life_s(provider) if wanted.expires_in_s is None else wanted.expires_in_s,
            texts=(wanted.refresh_token, wanted.access_token),
        )
        self._know_speaker(wanted)
        self.entries.begun(family, change)
        return self._grant(family, now)

    def _check_token(self, wanted: ConnectionConfig) -> None:
        """Two connections with one token could not be told apart in the ledger."""
        known = self.families.find(wanted.refresh_token)
        if known is not None and known.family.connection != wanted.connection:
            raise InvalidInputError(
                f"test issuer: the refresh token of {wanted.connection!r} belongs to another connection",
                provider=wanted.provider,
                hint="give each connection its own, or none",
            )

    def _know_speaker(self, wanted: ConnectionConfig) -> None:
        client_id = wanted.client_id or wanted.connection
        key = None if wanted.public_key is None else read_key(wanted.public_key)
        speaker = ClientIdentity(wanted.connection, client_id, key)
        for name in (wanted.connection, client_id):
            self._speakers[wanted.provider, name] = speaker

    def speaker(self, provider: str, *names: object) -> ClientIdentity | None:
        """Who of *names* (subject, issuer, client id; the first that is known) speaks, or None."""
        found = (self._speakers.get((provider, name)) for name in names if isinstance(name, str))
        return next((speaker for speaker in found if speaker is not None), None)

    def revoke(self, provider: str, connection: str, reason: str = "revoked") -> None:
        """The grant is withdrawn: all its tokens are dead, refreshes answer invalid_grant."""
        self.revoke_family(self.family(provider, connection), reason)

    def revoke_family(self, family: Family, reason: str) -> None:
        """As `revoke`, for a family at hand."""
        self.families.revoke(family, reason)
        self.entries.revoked(family, reason)

    def run_script(self, now: float) -> None:
        """Carry out the revocations that are due; called at each request."""
        while self._revocations and self._revocations[0][0] <= now:
            _, due = self._revocations.pop(0)
            self.revoke(due.provider, due.connection, "scripted")

    def grant(self, provider: str, connection: str) -> IssuedGrant:
        """How this connection stands now."""
        return self._grant(self.family(provider, connection), self.clock.monotonic())

    def grants(self) -> list[IssuedGrant]:
        """How every connection stands now."""
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
            expires_in_s=whole(max(0.0, newest.access.expires_at - now)),
            scope=family.scope,
            account_id=family.account_id,
            revoked=family.revoked,
        )

    # ---- settings --------------------------------------------------------------------------------

    def play(self, name: str, provider: ProviderConfig) -> None:
        """Play *provider* under *name* from now on; grants that exist keep their policy."""
        if re.fullmatch(PROVIDER_NAME, name) is None:
            raise InvalidInputError(
                "test issuer: this is no provider name", provider=name, hint=PROVIDER_NAME
            )
        self.providers[name] = provider

    def refuse_client(self, client_id: str, on: bool) -> None:
        """Answer ``invalid_client`` to this client id from now on, or stop doing so."""
        if on:
            self.invalid_clients.add(client_id)
        else:
            self.invalid_clients.discard(client_id)

    # ---- look-ups --------------------------------------------------------------------------------

    def provider(self, name: str) -> ProviderConfig:
        """The provider of this name; raises InvalidInputError when the issuer does not play it."""
        found = self.providers.get(name)
        if found is None:
            raise InvalidInputError(
                "test issuer: this provider is not configured",
                provider=name,
                hint=f"configured: {', '.join(sorted(self.providers)) or 'none'}",
            )
        return found

    def family(self, provider: str, connection: str) -> Family:
        """The newest grant of a connection; raises InvalidInputError when there is none."""
        found = self.families.family(provider, connection)
        if found is None:
            raise InvalidInputError(
                f"test issuer: the connection {connection!r} is not registered",
                provider=provider,
                hint="register it first",
            )
        return found

    def life_s(self, provider: ProviderConfig) -> float:
        """The life of the next access token, in seconds."""
        if not isinstance(provider.ttl_s, tuple):
            return whole(provider.ttl_s)
        low, high = provider.ttl_s
        if low.is_integer() and high.is_integer():
            return self._lives.randint(int(low), int(high))
        return whole(self._lives.uniform(low, high))


def whole(seconds: float) -> float:
    """Seconds as a provider would write them: an integer where they are one, else to the millisecond."""
    return int(seconds) if float(seconds).is_integer() else round(seconds, 3)
