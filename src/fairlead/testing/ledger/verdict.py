"""Judge a ledger: how often each refresh token was presented, and which tokens were lost and why.

* A *post* is one presentation of one generation of one connection. The first is allowed, and so is one after each
  post answered with an unchanged refresh token: an *answered failure* (a complete response, nothing
  processed) or an *unrotated* one (a new access token only). Every other post is a *replay*: the client could not
  know the outcome of the post before.
* The connection's policy (``issuer.families``) says which replays are allowed; after a complete refusal none is.
  Under the policies in ``replay_at_expiry`` (default: strict) one replay of a generation is allowed once its access
  token has expired, to find out whether the grant is valid.
* A *violation* is a generation with posts > 1 + answered failures + unrotated + allowed replays.
  ``replays_forbidden`` is stricter: it also counts a forbidden replay that met an answered failure.
* A generation is *burnt* when its connection has no usable refresh token any more:
  ``lost_answer`` it was processed, the response did not arrive completely, and the policy allows no replay;
  ``replay`` a forbidden replay was refused (under strict_family_revoke it killed the whole family);
  ``superseded`` the client presented a successor that an allowed replay had replaced.

A ledger cannot see a client that died after the last byte had reached its socket: such a rotation counts as
delivered until the old generation is presented again. The caller knows when it killed which process, and passes
these windows to `Verdict.burnt_outside`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields

from fairlead.testing.ledger.history import Burn, GenerationCount, History, LedgerRotation, ReplayAllowance
from fairlead.testing.ledger.lines import Ledger, Post, posts_of


@dataclass(frozen=True, slots=True)
class LedgerVerdict:
    """The totals, and the records behind them.

    Attributes:
        generations: Fresh token grants, without replays.
        reuse_events: Spent tokens presented although the policy forbids it, including the replay at expiry.
        lost_answers: Rotations with an incomplete response, recovered or not.
        unknown_tokens: Posts of tokens that the issuer never issued.
        incomplete: Posts without a body.
        revoked: Grants withdrawn.
        expired_served: Calls with an expired access token.
        in_url: Token requests with a query in the URL.
        strays: Requests for unknown paths, such as followed redirects.
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
        """Return the number of burns."""
        return len(self.burns)

    @property
    def violations(self) -> tuple[GenerationCount, ...]:
        """The generations presented more often than the rules allow."""
        return tuple(count for count in self.counts if count.violated)

    def totals(self) -> dict[str, int]:
        """Return the figures without their records, for one JSON line."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        figures = {name: value for name, value in values.items() if isinstance(value, int)}
        return {**figures, "burnt": self.burnt, "violations": len(self.violations)}

    def burnt_outside(self, windows: Iterable[tuple[float, float]]) -> tuple[Burn, ...]:
        """Return the burns that no window of a kill explains.

        A window (from, to), on the issuer's clock, explains a burn when it overlaps the time between the arrival
        of the rotation and its response. Nothing explains a burn by replay.
        """
        kills = tuple(windows)
        return tuple(burn for burn in self.burns if not any(_explains(window, burn) for window in kills))


def judge(
    ledger: Ledger,
    *,
    replay_at_expiry: Collection[str] = ("strict",),
    expiry_leeway_s: float = 1.0,
    provider: str | None = None,
) -> LedgerVerdict:
    """Return the verdict on all of *ledger*, or on one *provider*.

    Args:
        replay_at_expiry: Policies under which one replay is allowed when at most *expiry_leeway_s* remain of the
            access token (a client counts from its request, the issuer from its processing).
    """
    posts = [post for post in posts_of(ledger) if provider in (None, post.provider)]
    histories = _histories(ledger, posts, frozenset(replay_at_expiry), expiry_leeway_s)
    counts = tuple(count for history in histories for count in history.counts())
    rotations = tuple(rotation for history in histories for rotation in history.rotations())
    events = Counter(_event_key(entry.event, entry.fields, provider) for entry in ledger.entries)
    return LedgerVerdict(
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
    """Return one history for each connection and run, with the policy of its grant."""
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
    return [History(rules[key], posts) for key, posts in by_connection.items()]


def _event_key(event: str, line: dict[str, object], provider: str | None) -> str:
    """Return the name under which `judge` counts a line; "" for a line of another provider.

    A change of a grant counts under the change, such as ``revoked``; but a revocation because of a replay or a
    new consent counts as ``family``, since the customer withdrew nothing. A call with an expired token counts
    as ``expired``.
    """
    if provider is not None and line.get("provider") not in (None, provider):
        return ""
    if event == "family" and line.get("reason") not in ("replay", "reconnected"):
        return str(line["change"])
    return "expired" if event == "resource" and line["why"] == "expired" else event


def _explains(window: tuple[float, float], burn: Burn) -> bool:
    """Return whether the client was killed in *window* while *burn*'s rotation was in flight, and so lost it."""
    rotation = burn.rotation
    if burn.cause != "lost_answer" or rotation is None:
        return False
    begins, ends = window
    answered = float("inf") if rotation.t_answered is None else rotation.t_answered
    return begins <= answered and rotation.t_arrived <= ends
