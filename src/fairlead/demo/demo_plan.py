"""The plan of the demo: tenants, providers and connections, and the times of the faults. Values only.

Twenty tenants have ten connections each, at six providers with six replay policies. Times are shares of the length
of the run, so that a short run shows the same faults as a long one.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from fairlead.engine.ports import ConnectionKey
from fairlead.testing.issuer import ConnectionConfig, IssuerConfig, Policy, ProviderConfig, Quirk, Rule

TENANTS = (
    "acme", "birch", "cobalt", "dune", "ember", "fjord", "grove", "harbor", "iris", "juniper",
    "kelp", "lumen", "maple", "nimbus", "onyx", "pebble", "quartz", "raven", "sable", "tundra",
)  # fmt: skip
ACCOUNT_NAMES = ("default", "outlet")

TTL_S = (6.0, 12.0)
FIXED_TTL_S = 8.0
"""For responses without the life of a token (Salesforce): the profile must state it."""
GRACE_S = 30.0
RESPONSE_S = 0.2
"""Seconds between the spending of a token and the response: a worker that dies meanwhile loses the response."""

SHORTEST_S, LONGEST_S = 15, 600
LEAVING_CUSTOMERS = 3
LONGEST_OUTAGE_S = 3.0
REPLACED_AFTER_S = 1.0
"""A supervisor's delay before it replaces the killed worker."""


@dataclass(frozen=True, slots=True)
class DemoProvider:
    """One provider: the built-in profile *provider*, which the issuer serves under *policy*."""

    provider: str
    policy: Policy
    per_tenant: int
    variant: str | None = None
    dialect: str = "generic"
    ttl_s: float | tuple[float, float] = TTL_S

    @property
    def life_s(self) -> float:
        """Life of a token for the profile, used for a response without expires_in."""
        return sum(self.ttl_s) / 2 if isinstance(self.ttl_s, tuple) else self.ttl_s

    @property
    def client_id(self) -> str:
        """The app at this provider; a machine-to-machine connection has its own client id."""
        return f"demo-{self.provider}"


PROVIDERS = (
    DemoProvider("mercadolibre", Policy.STRICT, 2, dialect="mercadolibre"),
    DemoProvider("shopify", Policy.UNTIL_SUCCESSOR_USED, 2, dialect="shopify"),
    DemoProvider("xero", Policy.GRACE, 2),
    DemoProvider("salesforce", Policy.STRICT_FAMILY_REVOKE, 2, dialect="salesforce", ttl_s=FIXED_TTL_S),
    DemoProvider("google", Policy.STABLE, 1, dialect="google"),
    DemoProvider("netsuite", Policy.ASSERTION, 1, variant="m2m"),
)


@dataclass(frozen=True, slots=True)
class DemoAccount:
    """One connection, with its names at fairlead and at the issuer."""

    key: ConnectionKey
    provider: DemoProvider

    @property
    def name(self) -> str:
        """The connection's name at the issuer, and in the ledger."""
        return f"{self.key.tenant}-{self.key.account}"

    @property
    def label(self) -> str:
        """The connection in messages."""
        return f"{self.key.tenant} at {self.key.provider} ({self.key.account})"

    @property
    def number(self) -> int:
        """A number for the account."""
        return 1_000_000 + 10 * TENANTS.index(self.key.tenant) + ACCOUNT_NAMES.index(self.key.account)

    @property
    def client_id(self) -> str:
        """The client id of the connection at the token endpoint."""
        is_assertion = self.provider.policy is Policy.ASSERTION
        return f"{self.provider.client_id}-{self.name}" if is_assertion else self.provider.client_id

    @property
    def endpoint(self) -> dict[str, str]:
        """The parameters of the profile's URLs."""
        return {"shopify": {"shop": self.name}, "netsuite": {"account": str(self.number)}}.get(
            self.provider.provider, {}
        )

    @property
    def account_id(self) -> str | None:
        """The account id as the profile writes it; None if an endpoint parameter has it."""
        if self.provider.provider == "salesforce":
            return f"00D{self.number}"
        return str(self.number) if self.provider.provider == "mercadolibre" else None

    def at_issuer(self, public_key: str) -> ConnectionConfig:
        """Return the account in the issuer's configuration."""
        fields: dict[str, object] = {"provider": self.provider.provider, "connection": self.name}
        if self.provider.provider == "salesforce":
            fields["account_id"] = f"https://login.salesforce.com/id/{self.account_id}/005{self.number}"
        else:
            fields["account_id"] = self.number
        if self.provider.policy is Policy.ASSERTION:
            fields |= {"client_id": self.client_id, "public_key": public_key}
        return ConnectionConfig.read(fields, f"the connection {self.name}")


ACCOUNTS = tuple(
    DemoAccount(ConnectionKey(tenant, provider.provider, account), provider)
    for tenant in TENANTS
    for provider in PROVIDERS
    for account in ACCOUNT_NAMES[: provider.per_tenant]
)


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """One run of *seconds* seconds; *seed* draws the leaving customers, and the tokens."""

    seconds: float
    seed: int

    @property
    def revoke_after_s(self) -> tuple[float, ...]:
        """When customers withdraw their grants."""
        return tuple(self.seconds * share for share in (0.10, 0.14, 0.18))

    @property
    def outage_s(self) -> float:
        """Seconds that an outage lasts."""
        return min(LONGEST_OUTAGE_S, self.seconds / 5)

    @property
    def limited_after_s(self) -> float:
        """When every provider begins to answer 429."""
        return self.seconds * 0.24

    @property
    def killed_after_s(self) -> float:
        """When a worker is killed."""
        return self.seconds * 0.5

    @property
    def down_after_s(self) -> float:
        """When every provider begins to answer 503."""
        return self.seconds * 0.68

    def leaving(self) -> tuple[DemoAccount, ...]:
        """Return the customers that withdraw their grants, at three different providers."""
        draw = Random(f"{self.seed}:leaving")  # noqa: S311 - no secret
        providers = draw.sample(PROVIDERS, LEAVING_CUSTOMERS)
        return tuple(
            draw.choice([account for account in ACCOUNTS if account.provider is provider])
            for provider in providers
        )

    def issuer(self) -> IssuerConfig:
        """Return the configuration of the issuer."""
        return IssuerConfig(
            seed=self.seed,
            providers={provider.provider: _provider(provider) for provider in PROVIDERS},
            rules=(Rule(quirk=Quirk(slow_head_s=RESPONSE_S)),),
        )


def client_secret(provider: DemoProvider) -> str:
    """Return the app's secret at the issuer, which exists only while the demo runs."""
    return f"secret-of-{provider.client_id}"


def _provider(provider: DemoProvider) -> ProviderConfig:
    return ProviderConfig(
        policy=provider.policy,
        grace_s=GRACE_S if provider.policy is Policy.GRACE else 0.0,
        ttl_s=provider.ttl_s,
        dialect=provider.dialect,
        clients={} if provider.policy is Policy.ASSERTION else {provider.client_id: client_secret(provider)},
    )
