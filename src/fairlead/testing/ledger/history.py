"""One connection's history at the issuer: which posts were first ones, retries, replays or losses.

`fairlead.testing.ledger.verdict` describes the rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fairlead.testing.ledger.lines import Post

_NEVER_SPENT = ("stable", "assertion")
_STRICT = ("strict", "strict_family_revoke")


@dataclass(frozen=True, slots=True)
class ReplayAllowance:
    """The replays that a connection's client was allowed; *t_end* is the end of the ledger."""

    policy: str
    grace_s: float
    replay_at_expiry: bool
    expiry_leeway_s: float
    t_end: float


@dataclass(frozen=True, slots=True)
class LedgerRotation:
    """One processed post that created a successor, or returned it again.

    *delivered*: the new tokens were sent completely, or were presented later, which proves it. Times are of the
    issuer's monotonic clock.
    """

    provider: str
    connection: str
    generation: int
    successor: int
    t_arrived: float
    t_processed: float
    t_answered: float | None
    delivered: bool


@dataclass(frozen=True, slots=True)
class Burn:
    """A generation after which the connection had no usable refresh token; *rotation* spent it."""

    provider: str
    connection: str
    generation: int
    cause: Literal["lost_answer", "replay", "superseded"]
    t: float
    rotation: LedgerRotation | None


@dataclass(frozen=True, slots=True)
class GenerationCount:
    """The posts of one generation of one connection.

    Attributes:
        unrotated: Posts that returned an access token and left the refresh token as it was.
        replays_allowed: Allowed replays with an unknown outcome; answered failures are counted above.
        replays_forbidden: Replays that were not allowed, whatever their response.
        overlaps: Posts that arrived while an earlier one was in flight, which single flight forbids.
    """

    provider: str
    connection: str
    generation: int
    posts: int
    answered_failures: int
    unrotated: int
    replays: int
    replays_allowed: int
    replays_forbidden: int
    overlaps: int

    @property
    def violated(self) -> bool:
        """Whether there are more posts than the first, one after each known outcome, and the allowed replays."""
        return self.posts > 1 + self.answered_failures + self.unrotated + self.replays_allowed


class History:
    """All posts of one connection, in order of arrival."""

    def __init__(self, rules: ReplayAllowance, posts: list[Post]) -> None:
        self._rules = rules
        self._by_generation: defaultdict[int, list[Post]] = defaultdict(list)
        for post in posts:
            if post.generation is not None:
                self._by_generation[post.generation].append(post)

    # ---- presentations ---------------------------------------------------------------------------

    def counts(self) -> Iterator[GenerationCount]:
        """Yield one count for each presented generation."""
        for generation, posts in self._by_generation.items():
            replays = self._replays(posts)
            yield GenerationCount(
                provider=posts[0].provider,
                connection=posts[0].connection or "",
                generation=generation,
                posts=len(posts),
                answered_failures=sum(post.answered_failure for post in posts),
                unrotated=sum(post.unrotated for post in posts),
                replays=len(replays),
                replays_allowed=sum(allowed and not _leaves_token_valid(post) for post, allowed in replays),
                replays_forbidden=sum(not allowed for _, allowed in replays),
                overlaps=_overlaps(posts),
            )

    def _replays(self, posts: list[Post]) -> list[tuple[Post, bool]]:
        """Return the posts after one of unknown outcome, and whether each was allowed.

        A strict policy allows one of them, which finds out whether the grant is still valid.
        """
        first: Post | None = None
        refused = strict_replay_used = False
        replays = []
        for post in posts:
            if first is not None:
                allowed = not refused and not strict_replay_used and self._may_replay(first, post)
                replays.append((post, allowed))
                if allowed and self._strict and not _leaves_token_valid(post):
                    strict_replay_used = True
            elif not _leaves_token_valid(post):
                first = post
            refused = refused or (post.kind == "refused" and post.delivered)
        return replays

    @property
    def _strict(self) -> bool:
        """Whether the policy forbids replays, except one at the access token's expiry."""
        return self._rules.policy in _STRICT

    def _may_replay(self, first: Post, post: Post) -> bool:
        """Return whether the policy allows *post* after *first* of the same generation had an unknown outcome."""
        rules = self._rules
        if rules.policy in _NEVER_SPENT:
            return True
        if self._strict:
            expired = post.left_s is not None and post.left_s <= rules.expiry_leeway_s
            return rules.replay_at_expiry and expired
        if self._successor_used(first.generation, post.seq_arrived):
            return False
        spent_at = first.t_arrived if first.t_processed is None else first.t_processed
        return rules.policy != "grace" or post.t_arrived - spent_at <= rules.grace_s

    def _successor_used(self, generation: int | None, before_seq: int) -> bool:
        successors = {post.successor for post in self._by_generation[generation or 0]} - {None}
        return any(
            post.kind is not None and post.seq_arrived < before_seq
            for successor in successors
            for post in self._by_generation.get(successor or 0, ())
        )

    # ---- results -----------------------------------------------------------------------

    def rotations(self) -> Iterator[LedgerRotation]:
        """Yield every post that created a successor."""
        for posts in self._by_generation.values():
            yield from (self._rotation(post) for post in posts if post.rotated)

    def _rotation(self, post: Post) -> LedgerRotation:
        return LedgerRotation(
            provider=post.provider,
            connection=post.connection or "",
            generation=post.generation or 0,
            successor=post.successor or 0,
            t_arrived=post.t_arrived,
            t_processed=post.t_processed or post.t_arrived,
            t_answered=post.t_answered,
            delivered=post.tokens or post.successor in self._by_generation,
        )

    def burns(self) -> Iterator[Burn]:
        """Yield at most one burn for each presented generation."""
        for posts in self._by_generation.values():
            burn = self._burn(posts)
            if burn is not None:
                yield burn

    def _burn(self, posts: list[Post]) -> Burn | None:
        """Return the burn of the generation that *posts* presented, by the causes in `verdict`; None if it has none."""
        rotated = [post for post in posts if post.rotated]
        last = rotated[-1] if rotated else None
        if last is not None and self._is_lost(rotated):
            return self._new_burn("lost_answer", last, last)
        refused = [post for post in posts if post.kind == "refused"]
        superseded = next((post for post in refused if post.reason == "superseded"), None)
        if superseded is not None:
            return self._new_burn("superseded", superseded, None)
        replayed = next((post for post in refused if post.reason == "replay"), None)
        if replayed is None or last is None:
            return None
        if self._was_allowed(posts, replayed):
            if last.successor not in self._by_generation:
                return self._new_burn("lost_answer", last, last)
            if self._rules.policy == "strict":  # its response did arrive, and nothing was revoked
                return None
        return self._new_burn("replay", replayed, last) if self._strict else None

    def _is_lost(self, rotated: list[Post]) -> bool:
        """Return whether the newest successor never arrived and cannot be requested again."""
        newest = rotated[-1].successor
        if newest in self._by_generation or any(post.tokens for post in rotated if post.successor == newest):
            return False
        if self._rules.policy == "grace":
            return self._rules.t_end - (rotated[0].t_processed or 0.0) > self._rules.grace_s
        return self._strict

    def _was_allowed(self, posts: list[Post], replayed: Post) -> bool:
        """Return whether this refused replay was an allowed one by a client that had lost the response."""
        return not self._strict or any(post is replayed and allowed for post, allowed in self._replays(posts))

    def _new_burn(
        self, cause: Literal["lost_answer", "replay", "superseded"], post: Post, rotation: Post | None
    ) -> Burn:
        return Burn(
            provider=post.provider,
            connection=post.connection or "",
            generation=post.generation or 0,
            cause=cause,
            t=post.t_processed or post.t_arrived,
            rotation=None if rotation is None else self._rotation(rotation),
        )


def _leaves_token_valid(post: Post) -> bool:
    """Return whether the response to *post* says that its refresh token is still valid.

    Such a post may be repeated, so the next one is no replay.
    """
    return post.answered_failure or post.unrotated


def _overlaps(posts: list[Post]) -> int:
    """Return how many of *posts*, in order of arrival, arrived while an earlier one was in flight."""
    busy_until, overlaps = 0.0, 0
    for post in posts:
        overlaps += post.seq_arrived < busy_until
        busy_until = max(busy_until, float("inf") if post.seq_answered is None else post.seq_answered)
    return overlaps
