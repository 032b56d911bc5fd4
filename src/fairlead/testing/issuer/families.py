"""Token families: the grants of an issuer, and its six replay policies.

Pure state without a server: ``now`` and the token texts are arguments. A *family* is one grant of one connection;
a *generation* is one of its refresh tokens, counted from 1. Presenting a generation spends it and creates the
next one; presenting a spent one is a replay, and the policy decides:

    stable                 the refresh token never changes, so nothing is ever spent
    until_successor_used   allowed until the successor is presented for the first time (Shopify)
    grace                  allowed as above, but only within grace_s of the first use (Xero, Auth0)
    strict                 refused; the presented token counts as burnt (Mercado Libre)
    strict_family_revoke   refused, and the whole family dies, access tokens too (Salesforce RTR)
    assertion              there is no refresh token: each signed assertion mints (NetSuite M2M)

A token has one live successor at a time. An allowed replay either supersedes the first successor with a new one
(``on_replay="new"``, the default: a client that stores the older response has a dead token) or returns the same
successor again (``"same"``, as django-oauth-toolkit does).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

_SWEEP_FROM = 50_000  # access tokens stored before the first sweep of dead ones
_KEEP_EXPIRED_S = 600.0  # so that a late call gets "expired", not "unknown"


class Policy(StrEnum):
    """How an issuer answers a refresh token that was presented before."""

    STABLE = "stable"
    UNTIL_SUCCESSOR_USED = "until_successor_used"
    GRACE = "grace"
    STRICT = "strict"
    STRICT_FAMILY_REVOKE = "strict_family_revoke"
    ASSERTION = "assertion"

    @property
    def rotates(self) -> bool:
        """Whether presenting a refresh token spends it."""
        return self not in (Policy.STABLE, Policy.ASSERTION)

    @property
    def forgives(self) -> bool:
        """Whether the policy allows any replay of a spent token."""
        return self not in (Policy.STRICT, Policy.STRICT_FAMILY_REVOKE)


@dataclass(frozen=True, slots=True)
class ReplayRules:
    """One provider's replay policy. *grace_s* counts for ``grace`` only, from the first use."""

    policy: Policy
    grace_s: float = 0.0
    on_replay: Literal["new", "same"] = "new"


@dataclass(slots=True)
class Access:
    """One access token of *life_s* seconds; it dies at *expires_at* or when its family moves past *epoch*."""

    text: str
    family: Family
    epoch: int
    expires_at: float
    life_s: float


@dataclass(slots=True)
class Generation:
    """One refresh token of a family and its state; *text* is empty for assertions."""

    number: int
    text: str
    family: Family
    access: Access
    state: Literal["live", "spent", "superseded", "revoked"] = "live"
    first_used_at: float | None = None
    successor: Generation | None = None


@dataclass(slots=True)
class Family:
    """One grant: its newest generation, and the fields of its responses."""

    provider: str
    connection: str
    rules: ReplayRules
    scope: str
    account_id: str | int
    first_number: int = 1
    epoch: int = 0
    revoked: str = ""
    current: Generation = field(init=False)


@dataclass(frozen=True, slots=True)
class RefreshGranted:
    """A refresh that succeeded. *successor* is None when the refresh token did not change."""

    kind: Literal["rotated", "minted", "replayed", "unchanged"]
    family: Family
    presented: int
    successor: Generation | None
    access: Access


RefusalReason = Literal["unknown", "revoked", "replay", "superseded"]


@dataclass(frozen=True, slots=True)
class RefreshRefused:
    """A refresh that failed with ``invalid_grant``; *burnt* is the generation that this replay made unusable."""

    reason: RefusalReason
    family: Family | None = None
    presented: int | None = None
    reuse: bool = False
    burnt: int | None = None
    family_revoked: bool = False


@dataclass(frozen=True, slots=True)
class QuirkEffect:
    """The effect of a quirk on one refresh: keep the refresh token, return the same access token again, or add
    suffixes to the new tokens."""

    keep_refresh: bool = False
    same_access: bool = False
    access_suffix: str = ""
    refresh_suffix: str = ""


NO_EFFECT = QuirkEffect()


class Families:
    """All grants of an issuer; *mint* returns a new token text for ``"refresh"`` or ``"access"``."""

    def __init__(self, mint: Callable[[str], str]) -> None:
        self._mint = mint
        self._by_key: dict[tuple[str, str], Family] = {}
        self._by_refresh: dict[str, Generation] = {}
        self._by_access: dict[str, Access] = {}
        self._sweep_at = _SWEEP_FROM

    # ---- grants ----------------------------------------------------------------------------------

    def register(
        self, family: Family, *, now: float, ttl_s: float, texts: tuple[str, str] = ("", "")
    ) -> Family:
        """Add *family* with its first generation and an access token of *ttl_s* seconds.

        *texts* are the refresh and access token; an empty one is minted. An earlier family of the connection is
        revoked, and the generations continue its numbers.
        """
        previous = self._by_key.get((family.provider, family.connection))
        if previous is not None:
            self.revoke(previous, "reconnected")
            family.first_number = previous.current.number + 1
        refresh_text, access_text = texts
        access = self._access(family, now, ttl_s, access_text or self._mint("access"))
        if family.rules.policy is not Policy.ASSERTION:
            refresh_text = refresh_text or self._mint("refresh")
        self._generation(family, family.first_number, refresh_text, access)
        self._by_key[family.provider, family.connection] = family
        return family

    def revoke(self, family: Family, reason: str) -> None:
        """End *family*: all its refresh and access tokens are dead."""
        family.revoked = family.revoked or reason
        family.epoch += 1
        if family.current.state == "live":
            family.current.state = "revoked"

    def family(self, provider: str, connection: str) -> Family | None:
        """Return the newest grant of this connection, or None."""
        return self._by_key.get((provider, connection))

    def all(self) -> list[Family]:
        """Return the newest grant of every connection."""
        return list(self._by_key.values())

    def find(self, refresh_text: str) -> Generation | None:
        """Return the generation of this refresh token, live or not, or None."""
        return self._by_refresh.get(refresh_text)

    def access(self, access_text: str) -> Access | None:
        """Return the access token of this text, live or not, or None (never minted, or long expired)."""
        return self._by_access.get(access_text)

    @staticmethod
    def verdict_on(access: Access | None, now: float) -> Literal["live", "expired", "revoked", "unknown"]:
        """Return a resource server's verdict on an access token at *now*."""
        if access is None:
            return "unknown"
        if access.epoch != access.family.epoch:
            return "revoked"
        return "live" if now < access.expires_at else "expired"

    # ---- refreshing ------------------------------------------------------------------------------

    def refresh(
        self, generation: Generation, *, now: float, ttl_s: float, effect: QuirkEffect = NO_EFFECT
    ) -> RefreshGranted | RefreshRefused:
        """Present *generation*, for an assertion the family's only one, at *now*."""
        family = generation.family
        if generation.state == "spent":
            return self._replay(generation, now, ttl_s, effect)
        if generation.state != "live" or family.revoked:
            reason: RefusalReason = "superseded" if generation.state == "superseded" else "revoked"
            return RefreshRefused(reason, family, generation.number)
        if effect.same_access and now < generation.access.expires_at:
            return RefreshGranted("unchanged", family, generation.number, None, generation.access)
        if effect.keep_refresh or effect.same_access or not family.rules.policy.rotates:
            return self._mint_only(generation, now, ttl_s, effect)
        generation.state, generation.first_used_at = "spent", now
        return self._succeed("rotated", generation, now, ttl_s, effect)

    def _replay(
        self, generation: Generation, now: float, ttl_s: float, effect: QuirkEffect
    ) -> RefreshGranted | RefreshRefused:
        """Present a spent *generation* again: return tokens if the policy allows that, else a refusal."""
        family = generation.family
        if self.replay_allowed(generation, now):
            if effect.keep_refresh:
                return self._mint_only(generation, now, ttl_s, effect)
            return self._succeed("replayed", generation, now, ttl_s, effect)
        policy = family.rules.policy
        if family.revoked and policy.forgives:
            return RefreshRefused("revoked", family, generation.number)
        if policy is Policy.STRICT_FAMILY_REVOKE and not family.revoked:
            burnt_number = family.current.number
            self.revoke(family, "replay")
            return RefreshRefused(
                "replay", family, generation.number, True, burnt_number, family_revoked=True
            )
        burnt = generation.number if policy is Policy.STRICT else None
        return RefreshRefused("replay", family, generation.number, reuse=True, burnt=burnt)

    @staticmethod
    def replay_allowed(generation: Generation, now: float) -> bool:
        """Return whether the policy allows this spent generation to be presented again at *now*."""
        rules, successor = generation.family.rules, generation.successor
        if not rules.policy.forgives or successor is None or successor.state != "live":
            return False
        if rules.policy is Policy.GRACE:
            return generation.first_used_at is not None and now - generation.first_used_at <= rules.grace_s
        return True

    def _mint_only(
        self, generation: Generation, now: float, ttl_s: float, effect: QuirkEffect
    ) -> RefreshGranted:
        """Return a new access token, and leave the refresh token as it is."""
        family = generation.family
        generation.access = self._access(family, now, ttl_s, self._mint("access") + effect.access_suffix)
        return RefreshGranted("minted", family, generation.number, None, generation.access)

    def _succeed(
        self,
        kind: Literal["rotated", "replayed"],
        generation: Generation,
        now: float,
        ttl_s: float,
        effect: QuirkEffect,
    ) -> RefreshGranted:
        """Return a new access token and a successor; on a replay `on_replay` says whether it is the same one."""
        family, rival = generation.family, generation.successor
        access = self._access(family, now, ttl_s, self._mint("access") + effect.access_suffix)
        if rival is not None and family.rules.on_replay == "same":
            rival.access = access
            return RefreshGranted(kind, family, generation.number, rival, access)
        if rival is not None:
            rival.state = "superseded"
        text = self._mint("refresh") + effect.refresh_suffix
        generation.successor = self._generation(family, family.current.number + 1, text, access)
        return RefreshGranted(kind, family, generation.number, generation.successor, access)

    # ---- making ----------------------------------------------------------------------------------

    def _generation(self, family: Family, number: int, text: str, access: Access) -> Generation:
        generation = Generation(number, text, family, access)
        family.current = generation
        if text:
            self._by_refresh[text] = generation
        return generation

    def _access(self, family: Family, now: float, ttl_s: float, text: str) -> Access:
        access = Access(text, family, family.epoch, now + ttl_s, ttl_s)
        self._by_access[text] = access
        if len(self._by_access) >= self._sweep_at:
            self._sweep(now - _KEEP_EXPIRED_S)
        return access

    def _sweep(self, horizon: float) -> None:
        self._by_access = {
            text: token for text, token in self._by_access.items() if token.expires_at > horizon
        }
        self._sweep_at = max(_SWEEP_FROM, 2 * len(self._by_access))
