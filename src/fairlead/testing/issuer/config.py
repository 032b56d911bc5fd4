"""The configuration of an issuer: providers, connections, rules, and scheduled revocations.

The same models are read from TOML or JSON (`load`), from the control API and from Python:

    seed = 7
    [providers.mercadolibre]
    policy = "strict"
    dialect = "mercadolibre"
    ttl_s = [6, 12]
    [[connections]]
    provider = "mercadolibre"
    connection = "acme"
    [[rules]]                 # 429 from second 10 to 15, for one request in two
    quirk = "rate_limited_seconds"
    start_s = 10
    for_s = 5
    probability = 0.5
    [[revocations]]
    provider = "mercadolibre"
    connection = "acme"
    after_s = 20
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fairlead.errors import InvalidConfigError
from fairlead.testing._kit.model import Model
from fairlead.testing.issuer.dialects import DIALECTS, Dialect
from fairlead.testing.issuer.families import Policy, ReplayRules
from fairlead.testing.issuer.quirks import Rule

PROVIDER_NAME = "[a-z0-9][a-z0-9_.-]{0,63}"

ProviderName = Annotated[str, Field(pattern=rf"\A{PROVIDER_NAME}\z")]
ConnectionName = Annotated[str, Field(min_length=1, max_length=200)]
Ttl = Annotated[float, Field(gt=0)] | tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]]


class ProviderConfig(Model):
    """One provider that the issuer acts as.

    Attributes:
        policy, grace_s, on_replay: The replay policy; see `families`.
        ttl_s: Life of an access token in seconds, or a range drawn from the seed (whole seconds if both ends are).
        dialect: Wording of responses.
        clients: Client ids with their secrets; empty accepts any client.
        audience: The required ``aud`` of an assertion (default: the token endpoint's URL).
    """

    policy: Policy = Policy.STRICT
    grace_s: float = Field(0.0, ge=0)
    on_replay: Literal["new", "same"] = "new"
    ttl_s: Ttl = 3600.0
    dialect: str = "generic"
    clients: dict[str, str] = Field(default_factory=dict)
    audience: str | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if (self.grace_s > 0) != (self.policy is Policy.GRACE):
            raise ValueError("grace_s above 0 belongs to the policy grace, and grace needs it")
        if isinstance(self.ttl_s, tuple) and self.ttl_s[0] > self.ttl_s[1]:
            raise ValueError("ttl_s: the lower end of the range comes first")
        if self.dialect not in DIALECTS:
            raise ValueError(f"dialect must be one of {', '.join(sorted(DIALECTS))}")
        return self

    @property
    def rules(self) -> ReplayRules:
        """The replay policy for the families."""
        return ReplayRules(self.policy, self.grace_s, self.on_replay)

    @property
    def wording(self) -> Dialect:
        """The dialect itself."""
        return DIALECTS[self.dialect]


class ConnectionConfig(Model):
    """One account of the issuer.

    Empty tokens are minted. *expires_in_s* is the life of the first access token (default: the provider's).
    *client_id* and *public_key* (PEM or JWK) are for assertions: their subject or issuer, and the key that must
    verify them (without one: any signature).
    """

    provider: ProviderName
    connection: ConnectionName
    refresh_token: str = ""
    access_token: str = ""
    expires_in_s: float | None = None
    scope: str = "offline_access read write"
    account_id: str | int | None = None
    client_id: str | None = None
    public_key: str | dict[str, str | list[str]] | None = None


class Revocation(Model):
    """A customer withdraws the grant *after_s* seconds after the issuer's start."""

    provider: ProviderName
    connection: ConnectionName
    after_s: float = Field(0.0, ge=0)


class IssuerConfig(Model):
    """The whole configuration.

    Attributes:
        port: 0 takes a free one.
        seed: Draws tokens, lifetimes and chances.
        ledger: The ledger file (default: a temporary one).
        sync: Write each line at once. Without it SIGKILL loses the lines of the last 50 ms at most.
    """

    host: str = "127.0.0.1"
    port: int = Field(0, ge=0, le=65535)
    seed: int = 1
    ledger: Path | None = None
    sync: bool = False
    providers: dict[ProviderName, ProviderConfig] = Field(default_factory=dict)
    connections: tuple[ConnectionConfig, ...] = ()
    rules: tuple[Rule, ...] = ()
    revocations: tuple[Revocation, ...] = ()
    invalid_clients: frozenset[str] = frozenset()


def load(path: Path) -> IssuerConfig:
    """Return the configuration in *path* (.toml or .json); raise InvalidConfigError with the wrong field."""
    try:
        text = path.read_text("utf-8")
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise InvalidConfigError(
            f"test issuer: cannot read the configuration {path}: {error}",
            hint="give a TOML or JSON file with the fields of fairlead.testing.issuer.config",
        ) from None
    return IssuerConfig.read(data, f"the configuration {path}")
