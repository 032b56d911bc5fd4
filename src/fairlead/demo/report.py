"""The demo's last word: what the issuer's ledger and the database say, held against what was promised.

The ledger is the truth of the other side; a burnt token counts as explained only if the killed process had
that very refresh in flight when it died.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.assembly.runtime import Runtime
from fairlead.demo.demo_plan import ACCOUNTS, PROVIDERS, DemoAccount, DemoPlan, DemoProvider
from fairlead.demo.recovery import Recovery
from fairlead.demo.token_callers import CallTally, expired_when_served
from fairlead.demo.watch import everyone
from fairlead.engine.ports import ConnectionKey, Credential, DeadLetter, JobView
from fairlead.testing.ledger import Burn, GenerationCount, Ledger, Verdict, judge, posts_of

LOST = "lost_rotation"
WINDOW_S = 1.0
"""Around the SIGKILL: what left the issuer so long before may not have reached the journal yet."""


@dataclass(frozen=True, slots=True)
class FinalState:
    """What the database says at the end."""

    connections: Sequence[Credential]
    jobs: Sequence[JobView]
    dead_letters: Sequence[DeadLetter]

    @classmethod
    async def read(cls, runtime: Runtime) -> FinalState:
        """Read them."""
        return cls(
            connections=await everyone(runtime),
            jobs=await runtime.jobs.search(
                state=None, kind=None, tenant_id=None, queue=None, limit=1_000_000
            ),
            dead_letters=await runtime.dead_letters.search(
                status=None, category=None, tenant_id=None, kind=None, limit=1_000_000
            ),
        )

    @property
    def retries(self) -> dict[str, int]:
        """Failed attempts that were tried again, by category, from the history that each job keeps."""
        failures = (failure for job in self.jobs for failure in job.failures)
        return dict(
            Counter(str(each["category"]) for each in failures if each.get("next_retry_s") is not None)
        )

    @property
    def needs_reauth(self) -> dict[ConnectionKey, str]:
        """Connections that need their customer, and why."""
        found = (each for each in self.connections if each.state == "needs_reauth")
        return {each.connection.key: each.state_reason or "" for each in found}


@dataclass(frozen=True, slots=True)
class RunNotes:
    """What the demo itself has noted."""

    plan: DemoPlan
    tally: CallTally
    left: Sequence[DemoAccount]
    recovery: Recovery
    exit_codes: Mapping[str, int]
    killed: int
    took_s: float


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The figures, and what is wrong with them (nothing, if all was kept)."""

    figures: Mapping[str, Any]
    policies: Sequence[Mapping[str, Any]]
    violations: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """One object."""
        return {**self.figures, "policies": list(self.policies), "violations": list(self.violations)}


@dataclass(slots=True)
class DemoJudge:
    """Holds a run against its promises."""

    run: RunNotes
    books: FinalState
    ledger: Ledger
    verdict: Verdict = field(init=False)

    def __post_init__(self) -> None:
        self.verdict = judge(self.ledger)

    def report(self) -> DemoReport:
        """All figures, and all that is violated."""
        run, books, verdict = self.run, self.books, self.verdict
        policies = self.policies()
        figures: dict[str, Any] = {
            "connections": len(books.connections),
            "refreshed": sum(each.generation > 1 for each in books.connections),
            "generations": sum(each.generation - 1 for each in books.connections),
            "provider_posts": verdict.provider_posts,
            "burnt_outside_window": len(self.burnt_outside()),
            "lost_rotation": len(self.lost()),
            "expired_served": len(expired_when_served(run.tally.expired, self.ledger)),
            "retries": books.retries,
            "dead_letters": dict(Counter(each.category for each in books.dead_letters)),
            "needs_reauth": len(books.needs_reauth),
            "revoked_by_customer": len(run.left),
            "killed_workers": run.killed,
            "recovered_s": _rounded(run.recovery.recovered_s),
            "jobs_in_flight_at_kill": run.recovery.jobs,
            "refreshes_in_flight_at_kill": run.recovery.refreshes,
            "refreshes_settled_s": _rounded(run.recovery.settled_s),
            "replays": sum(each["replays"] for each in policies),
            "tokens_served": run.tally.outcomes["ok"],
            "calls_told_to_wait": run.tally.outcomes["later"],
            "seconds": run.plan.seconds,
            "took_s": _rounded(run.took_s),
            "seed": run.plan.seed,
        }
        return DemoReport(figures, policies, self.violations(figures))

    # ---- parts ---------------------------------------------------------------------------------

    def lost(self) -> list[ConnectionKey]:
        """Connections whose rotation was lost, but for those that the customer had withdrawn anyway."""
        left = {account.key for account in self.run.left}
        return [key for key, why in self.books.needs_reauth.items() if why == LOST and key not in left]

    @property
    def window(self) -> tuple[float, float]:
        """When answers could be lost with the killed worker, on the clock that all processes share."""
        killed_s = self.run.recovery.killed_s
        return killed_s - WINDOW_S, killed_s + WINDOW_S

    def had_in_flight(self, provider: str, connection: str) -> bool:
        """Whether the killed worker was refreshing this connection when it died."""
        return any(
            key.provider == provider and f"{key.tenant}-{key.account}" == connection
            for key in self.run.recovery.seen
        )

    def burnt_outside(self) -> list[Burn]:
        """Burnt generations that the kill does not explain."""
        outside = set(self.verdict.burnt_outside([self.window]))
        return [
            burn
            for burn in self.verdict.burns
            if burn in outside or not self.had_in_flight(burn.provider, burn.connection)
        ]

    def presented_too_often(self) -> list[GenerationCount]:
        """Generations presented more often than the policy allows, as far as their clients could know.

        The ledger takes a refusal for known once its last byte is with the kernel; a client that is killed
        before it has read it does not know, and may ask once more.
        """
        return [count for count in self.verdict.violations if _excess(count) > self._unread_refusals(count)]

    def _unread_refusals(self, count: GenerationCount) -> int:
        begins, ends = self.window
        return self.had_in_flight(count.provider, count.connection) * sum(
            (post.provider, post.connection, post.generation)
            == (count.provider, count.connection, count.generation)
            and post.kind == "refused"
            and begins <= (post.t_answered or 0.0) <= ends
            for post in posts_of(self.ledger)
        )

    def policies(self) -> list[dict[str, Any]]:
        """The figures of each replay policy."""
        lost = Counter(key.provider for key in self.lost())
        return [self._policy(role, lost) for role in PROVIDERS]

    def _policy(self, role: DemoProvider, lost: Mapping[str, int]) -> dict[str, Any]:
        provider = role.provider
        verdict = judge(self.ledger, provider=provider)
        own = [each for each in self.books.connections if each.connection.key.provider == provider]
        return {
            "policy": role.policy.value,
            "provider": provider,
            "connections": len(own),
            "generations": sum(each.generation - 1 for each in own),
            "provider_posts": verdict.provider_posts,
            "answered_failures": verdict.answered_failures,
            "lost_answers": verdict.lost_answers,
            # where nothing is ever spent, sending the same token again is no replay
            "replays": verdict.replays if role.policy.rotates else 0,
            "burnt": verdict.burnt,
            "lost_rotation": lost.get(provider, 0),
            "needs_reauth": sum(each.state == "needs_reauth" for each in own),
        }

    # ---- promises ------------------------------------------------------------------------------

    def violations(self, figures: Mapping[str, Any]) -> list[str]:
        """What was promised and not kept, in words."""
        wrong = [
            f"{burn.provider} {burn.connection}: generation {burn.generation} was burnt ({burn.cause}), "
            "and no kill explains it"
            for burn in self.burnt_outside()
        ]
        wrong += [
            f"{count.provider} {count.connection}: generation {count.generation} was presented "
            f"{count.posts} times, with {count.answered_failures} answered failures and "
            f"{count.replays_allowed} allowed replays"
            for count in self.presented_too_often()
        ]
        wrong += self._wrong_states()
        checks = {
            f"{figures['expired_served']} expired tokens were served": figures["expired_served"] > 0,
            f"{figures['connections']} connections instead of {len(ACCOUNTS)}":
                figures["connections"] != len(ACCOUNTS),
            "the issuer did not end by itself: its ledger is not complete": not self.ledger.complete,
            "what the killed worker had in flight was not at work again": figures["recovered_s"] is None,
            "a refresh that the killed worker had in flight never ended":
                figures["refreshes_settled_s"] is None,
            f"{self.verdict.unknown_tokens} requests carried a token that the issuer never gave":
                self.verdict.unknown_tokens > 0,
            f"callers met errors they should not: {dict(self.run.tally.surprises)}":
                bool(self.run.tally.surprises),
        }  # fmt: skip
        wrong += [what for what, is_wrong in checks.items() if is_wrong]
        codes = self.run.exit_codes.items()
        return wrong + [
            f"{name} ended with exit code {code} when asked to stop" for name, code in codes if code
        ]

    def _wrong_states(self) -> list[str]:
        """needs_reauth = the customers who left + the rotations that were lost, by name."""
        standing, lost = self.books.needs_reauth, set(self.lost())
        left = {account.key for account in self.run.left}
        wrong = [
            f"{key.tenant} {key.provider} {key.account}: needs its customer ({why}), who never left"
            for key, why in standing.items()
            if key not in left | lost
        ]
        missing = sorted(left - set(standing), key=str)
        wrong += [
            f"{key.tenant} {key.provider} {key.account}: left, and was not found out" for key in missing
        ]
        open_ends = [each.connection.key for each in self.books.connections if each.state == "unknown"]
        return wrong + [
            f"{key.tenant} {key.provider} {key.account}: its outcome is still unknown" for key in open_ends
        ]


def _excess(count: GenerationCount) -> int:
    return count.posts - 1 - count.answered_failures - count.kept - count.replays_allowed


def _rounded(length_s: float | None) -> float | None:
    return None if length_s is None else round(length_s, 2)
