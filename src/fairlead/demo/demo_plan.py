"""What the demo plays: who is on stage, and what happens when. Values only.

Twenty tenants hold ten connections each, at six providers that treat a spent refresh token in six different
ways. Times are shares of the length of the run, so that a short run shows the same acts as a long one.
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
"""Where answers do not tell the life of a token (Salesforce), the profile must know it."""
GRACE_S = 30.0
ANSWER_S = 0.2
"""How long the provider thinks, with the token already spent: who dies meanwhile has lost the answer."""

SHORTEST_S, LONGEST_S = 15, 600
CUSTOMERS_WHO_LEAVE = 3
LONGEST_SPELL_S = 3.0
REPLACED_AFTER_S = 1.0
"""How long the killed worker is missed: a supervisor's restart delay."""


@dataclass(frozen=True, slots=True)
class DemoProvider:
    """One provider on stage: the built-in profile under *provider*, played by the issuer under *policy*."""

    provider: str
    policy: Policy
    per_tenant: int
    variant: str | None = None
    dialect: str = "generic"
    ttl_s: float | tuple[float, float] = TTL_S

    @property
    def life_s(self) -> float:
        """Life of a token for the profile: what an answer without expires_in stands for."""
        return sum(self.ttl_s) / 2 if isinstance(self.ttl_s, tuple) else self.ttl_s

    @property
    def client_id(self) -> str:
        """The app at this provider; a machine-to-machine connection has a client id of its own."""
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
    """One connection, as both sides know it."""

    key: ConnectionKey
    role: DemoProvider

    @property
    def name(self) -> str:
        """The connection's name at the issuer, and in the ledger."""
        return f"{self.key.tenant}-{self.key.account}"

    @property
    def label(self) -> str:
        """The connection for people."""
        return f"{self.key.tenant} at {self.key.provider} ({self.key.account})"

    @property
    def number(self) -> int:
        """An account number that looks like one."""
        return 1_000_000 + 10 * TENANTS.index(self.key.tenant) + ACCOUNT_NAMES.index(self.key.account)

    @property
    def client_id(self) -> str:
        """What the connection shows at the token endpoint."""
        own = self.role.policy is Policy.ASSERTION
        return f"{self.role.client_id}-{self.name}" if own else self.role.client_id

    @property
    def endpoint(self) -> dict[str, str]:
        """The parameters of the profile's addresses."""
        return {"shopify": {"shop": self.name}, "netsuite": {"account": str(self.number)}}.get(
            self.role.provider, {}
        )

    @property
    def account_id(self) -> str | None:
        """The account as the profile writes it; None where an endpoint parameter tells."""
        if self.role.provider == "salesforce":
            return f"00D{self.number}"
        return str(self.number) if self.role.provider == "mercadolibre" else None

    def at_issuer(self, public_key: str) -> ConnectionConfig:
        """The account as the issuer has it."""
        known: dict[str, object] = {"provider": self.role.provider, "connection": self.name}
        if self.role.provider == "salesforce":
            known["account_id"] = f"https://login.salesforce.com/id/{self.account_id}/005{self.number}"
        else:
            known["account_id"] = self.number
        if self.role.policy is Policy.ASSERTION:
            known |= {"client_id": self.client_id, "public_key": public_key}
        return ConnectionConfig.read(known, f"the connection {self.name}")


ACCOUNTS = tuple(
    DemoAccount(ConnectionKey(tenant, role.provider, account), role)
    for tenant in TENANTS
    for role in PROVIDERS
    for account in ACCOUNT_NAMES[: role.per_tenant]
)


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """One run. *seconds* from the first refresh to the last act; *seed* draws who leaves, and the tokens."""

    seconds: float
    seed: int

    @property
    def revoke_at_s(self) -> tuple[float, ...]:
        """When customers withdraw their grants."""
        return tuple(self.seconds * share for share in (0.10, 0.14, 0.18))

    @property
    def spell_s(self) -> float:
        """How long a spell lasts."""
        return min(LONGEST_SPELL_S, self.seconds / 5)

    @property
    def limited_at_s(self) -> float:
        """When every provider begins to answer 429."""
        return self.seconds * 0.24

    @property
    def killed_at_s(self) -> float:
        """When a worker is killed."""
        return self.seconds * 0.5

    @property
    def down_at_s(self) -> float:
        """When every provider begins to answer 503."""
        return self.seconds * 0.68

    def leaving(self) -> tuple[DemoAccount, ...]:
        """The customers who withdraw their grants, of three different providers."""
        draw = Random(f"{self.seed}:leaving")  # noqa: S311 - a play, not a secret
        roles = draw.sample(PROVIDERS, CUSTOMERS_WHO_LEAVE)
        return tuple(draw.choice([each for each in ACCOUNTS if each.role is role]) for role in roles)

    def issuer(self) -> IssuerConfig:
        """The rude issuer's part."""
        return IssuerConfig(
            seed=self.seed,
            providers={role.provider: _provider(role) for role in PROVIDERS},
            rules=(Rule(quirk=Quirk(slow_head_s=ANSWER_S)),),
        )


def client_secret(role: DemoProvider) -> str:
    """The app's secret at the issuer, which runs on this machine for the length of the demo."""
    return f"secret-of-{role.client_id}"


def _provider(role: DemoProvider) -> ProviderConfig:
    return ProviderConfig(
        policy=role.policy,
        grace_s=GRACE_S if role.policy is Policy.GRACE else 0.0,
        ttl_s=role.ttl_s,
        dialect=role.dialect,
        clients={} if role.policy is Policy.ASSERTION else {role.client_id: client_secret(role)},
    )
