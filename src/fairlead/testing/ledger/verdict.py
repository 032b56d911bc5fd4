"""Judges a ledger: how often each refresh token was presented, and what was lost by whose fault.

* A *post* is one presentation of one generation of one connection. The first is free, and so is one
  after each post that left the refresh token as it was and said so: an *answered failure* (a complete
  answer, nothing processed) or one that *kept* it (a new access token only). Every other post is a
  *replay*: the client could not know what had become of the one before.
* Which replays are allowed follows from the connection's policy (``issuer.families``); after a complete
  refusal none is. Under the policies in ``replay_at_expiry`` (default: strict) one replay per generation
  is allowed once the access token that came with it has expired, to find out whether the grant lives.
* A *violation* is a generation with posts > 1 + answered failures + kept + allowed replays. Stricter is
  ``replays_forbidden``: it also counts the forbidden replay that happened to meet an answered failure.
* A generation is *burnt* when its connection lost its refresh token for good:
  ``lost_answer`` it was processed, the answer did not arrive whole, the policy gives no way back;
  ``replay`` a forbidden replay was refused (under strict_family_revoke it killed the whole family);
  ``superseded`` the client presented a successor that an allowed replay had replaced.

What no ledger can see is a client that died after the last byte had reached its socket: such a rotation
counts as delivered until the old generation comes back. Whether a burn lies in such a window is for the
caller, who knows when it killed whom: `Verdict.burnt_outside`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields

from fairlead.testing.ledger.history import Burn, GenerationCount, History, LedgerRotation, ReplayAllowance
from fairlead.testing.ledger.lines import Ledger, Post, posts_of


@dataclass(frozen=True, slots=True)
class Verdict:
    """The totals, and the records they stand on.

    *generations*: fresh token grants (without replays); *reuse_events*: spent tokens that came back
    where the policy forbids it, including the tolerated look at expiry; *lost_answers*: rotations whose
    answer did not arrive whole, recovered or not; *unknown_tokens*: posts of tokens the issuer never
    gave; *incomplete*: posts whose body never came; *revoked*: grants withdrawn; *expired_served*: calls
    with an expired access token; *in_url*: token requests with something in the URL; *strays*: redirects
    followed and the like.
    """

    provider_posts: int
    generations: int
    answered_failures: int
    replays: int
    replays_allowed: int
    replays_forbidden: int
    overlaps: int
    lost_answers: int
    reuse_events: int
    unknown_tokens: int
    incomplete: int
    revoked: int
    resource_calls: int
    expired_served: int
    in_url: int
    strays: int
    counts: tuple[GenerationCount, ...]
    rotations: tuple[LedgerRotation, ...]
    burns: tuple[Burn, ...]

    @property
    def burnt(self) -> int:
        """How many generations were burnt."""
        return len(self.burns)

    @property
    def violations(self) -> tuple[GenerationCount, ...]:
        """The generations presented more often than the rules allow."""
        return tuple(count for count in self.counts if count.violated)

    def totals(self) -> dict[str, int]:
        """The figures without their records, for one JSON line."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        figures = {name: value for name, value in values.items() if isinstance(value, int)}
        return {**figures, "burnt": self.burnt, "violations": len(self.violations)}

    def burnt_outside(self, windows: Iterable[tuple[float, float]]) -> tuple[Burn, ...]:
        """The burns that no window of death explains.

        A window (from, to), on the issuer's clock, explains a burn when it meets the time between the
        arrival of the rotation and its answer. A burn by replay is explained by nothing.
        """
        known = tuple(windows)
        return tuple(burn for burn in self.burns if not any(_explains(window, burn) for window in known))


def judge(
    ledger: Ledger,
    *,
    replay_at_expiry: Collection[str] = ("strict",),
    expiry_leeway_s: float = 1.0,
    provider: str | None = None,
) -> Verdict:
    """The verdict on all of *ledger*, or on one *provider*.

    *replay_at_expiry*: policies under which one replay is allowed when at most *expiry_leeway_s* is left
    of the access token (a client counts from its send, the issuer from its processing).
    """
    posts = [post for post in posts_of(ledger) if provider in (None, post.provider)]
    histories = _histories(ledger, posts, frozenset(replay_at_expiry), expiry_leeway_s)
    counts = tuple(count for history in histories for count in history.counts())
    rotations = tuple(rotation for history in histories for rotation in history.rotations())
    events = Counter(_event_key(entry.event, entry.fields, provider) for entry in ledger.entries)
    return Verdict(
        provider_posts=sum(not post.incomplete for post in posts),
        generations=sum(post.kind in ("rotated", "minted") for post in posts),
        answered_failures=sum(post.answered_failure for post in posts),
        replays=sum(count.replays for count in counts),
        replays_allowed=sum(count.replays_allowed for count in counts),
        replays_forbidden=sum(count.replays_forbidden for count in counts),
        overlaps=sum(count.overlaps for count in counts),
        lost_answers=sum(not rotation.delivered for rotation in rotations),
        reuse_events=events["reuse"],
        unknown_tokens=sum(post.generation is None and not post.incomplete for post in posts),
        incomplete=sum(post.incomplete for post in posts),
        revoked=events["revoked"],
        resource_calls=events["resource"] + events["expired"],
        expired_served=events["expired"],
        in_url=sum(post.in_url for post in posts),
        strays=events["stray"],
        counts=counts,
        rotations=rotations,
        burns=tuple(burn for history in histories for burn in history.burns()),
    )


def _histories(
    ledger: Ledger, posts: list[Post], replay_at_expiry: frozenset[str], leeway_s: float
) -> list[History]:
    """One history per connection and run, with the policy its grant was made under."""
    ends = {entry.run: entry.t for entry in ledger.entries}
    rules = {
        (entry.run, entry.fields["provider"], entry.fields["connection"]): ReplayAllowance(
            policy=entry.fields["policy"],
            grace_s=entry.fields.get("grace_s", 0.0),
            replay_at_expiry=entry.fields["policy"] in replay_at_expiry,
            expiry_leeway_s=leeway_s,
            t_end=ends[entry.run],
        )
        for entry in ledger.of("family")
        if "policy" in entry.fields
    }
    by_connection: defaultdict[tuple[int, str, str], list[Post]] = defaultdict(list)
    for post in posts:
        if post.connection is not None:
            by_connection[post.run, post.provider, post.connection].append(post)
    return [History(rules[key], own) for key, own in by_connection.items()]


def _event_key(event: str, line: dict[str, object], provider: str | None) -> str:
    if provider is not None and line.get("provider") not in (None, provider):
        return ""
    if event == "family" and line.get("reason") not in ("replay", "reconnected"):
        return str(line["change"])
    return "expired" if event == "resource" and line["why"] == "expired" else event


def _explains(window: tuple[float, float], burn: Burn) -> bool:
    rotation = burn.rotation
    if burn.cause != "lost_answer" or rotation is None:
        return False
    begins, ends = window
    answered = float("inf") if rotation.t_answered is None else rotation.t_answered
    return begins <= answered and rotation.t_arrived <= ends
