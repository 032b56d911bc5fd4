"""The report of the demo: the issuer's ledger and the database, compared with the promises.

The ledger records what the provider saw. A token is *burnt* if its connection lost every valid
refresh token by the fault of the client. That is explained only if the killed process was refreshing the connection
when it died.
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
from fairlead.demo.watch import read_credentials
from fairlead.engine.ports import ConnectionKey, Credential, DeadLetter, JobView
from fairlead.testing.ledger import Burn, GenerationCount, Ledger, LedgerVerdict, judge, posts_of

LOST = "lost_rotation"
WINDOW_S = 1.0
"""Around the SIGKILL: a response that the issuer sent so long before may not be in the journal yet."""


@dataclass(frozen=True, slots=True)
class FinalState:
    """The rows of the database at the end."""

    connections: Sequence[Credential]
    jobs: Sequence[JobView]
    dead_letters: Sequence[DeadLetter]

    @classmethod
    async def read(cls, runtime: Runtime) -> FinalState:
        """Read them."""
        return cls(
            connections=await read_credentials(runtime),
            jobs=await runtime.jobs.search(
                state=None, kind=None, tenant_id=None, queue=None, limit=1_000_000
            ),
            dead_letters=await runtime.dead_letters.search(
                status=None, category=None, tenant_id=None, kind=None, limit=1_000_000
            ),
        )

    @property
    def retries(self) -> dict[str, int]:
        """Failed attempts that were retried, by category, from the history of each job."""
        failures = (failure for job in self.jobs for failure in job.failures)
        return dict(
            Counter(
                str(failure["category"]) for failure in failures if failure.get("next_retry_s") is not None
            )
        )

    @property
    def needs_reauth(self) -> dict[ConnectionKey, str]:
        """Connections that need their customer, with the reason."""
        return {
            credential.connection.key: credential.state_reason or ""
            for credential in self.connections
            if credential.state == "needs_reauth"
        }


@dataclass(frozen=True, slots=True)
class RunNotes:
    """What the demo itself recorded."""

    plan: DemoPlan
    tally: CallTally
    leaving: Sequence[DemoAccount]
    recovery: Recovery
    exit_codes: Mapping[str, int]
    killed: int
    took_s: float


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The figures, and the violated promises."""

    figures: Mapping[str, Any]
    policies: Sequence[Mapping[str, Any]]
    violations: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """Return the report as one object."""
        return {**self.figures, "policies": list(self.policies), "violations": list(self.violations)}


@dataclass(slots=True)
class DemoJudge:
    """The comparison of a run with its promises."""

    run: RunNotes
    final: FinalState
    ledger: Ledger
    verdict: LedgerVerdict = field(init=False)

    def __post_init__(self) -> None:
        self.verdict = judge(self.ledger)

    def report(self) -> DemoReport:
        """Return all figures and all violations."""
        run, final, verdict = self.run, self.final, self.verdict
        policies = self.policies()
        figures: dict[str, Any] = {
            "connections": len(final.connections),
            "refreshed": sum(credential.generation > 1 for credential in final.connections),
            "generations": sum(credential.generation - 1 for credential in final.connections),
            "provider_posts": verdict.provider_posts,
            "burnt_outside_window": len(self.burnt_outside()),
            "lost_rotation": len(self.lost()),
            "expired_served": len(expired_when_served(run.tally.expired, self.ledger)),
            "retries": final.retries,
            "dead_letters": dict(Counter(entry.category for entry in final.dead_letters)),
            "needs_reauth": len(final.needs_reauth),
            "revoked_by_customer": len(run.leaving),
            "killed_workers": run.killed,
            "recovered_s": _rounded(run.recovery.recovered_s),
            "jobs_in_flight_at_kill": run.recovery.jobs,
            "refreshes_in_flight_at_kill": len(self.in_flight()),
            "refreshes_settled_s": _rounded(run.recovery.settled_s),
            "replays": sum(policy["replays"] for policy in policies),
            "tokens_served": run.tally.outcomes["ok"],
            "calls_refused_for_now": run.tally.outcomes["later"],
            "seconds": run.plan.seconds,
            "took_s": _rounded(run.took_s),
            "seed": run.plan.seed,
        }
        return DemoReport(figures, policies, self.violations(figures))

    # ---- parts ---------------------------------------------------------------------------------

    def lost(self) -> list[ConnectionKey]:
        """Return the connections with a lost rotation, except those withdrawn by their customer."""
        leaving = {account.key for account in self.run.leaving}
        return [key for key, why in self.final.needs_reauth.items() if why == LOST and key not in leaving]

    @property
    def window(self) -> tuple[float, float]:
        """The instants between which responses could be lost with the killed worker, on the monotonic clock."""
        killed_mono = self.run.recovery.killed_mono
        return killed_mono - WINDOW_S, killed_mono + WINDOW_S

    def in_flight(self) -> set[ConnectionKey]:
        """Return the connections with a refresh in flight at the kill.

        A lost rotation that the kill explains was in flight, even if other workers had taken it over before the
        first sample after the kill.
        """
        recovery = self.run.recovery
        return recovery.in_flight | {key for key in self.lost() if key in recovery.suspects}

    def was_refreshed_at_kill(self, provider: str, connection: str) -> bool:
        """Return whether the killed worker was refreshing this connection when it died."""
        return any(
            key.provider == provider and f"{key.tenant}-{key.account}" == connection
            for key in self.run.recovery.suspects
        )

    def burnt_outside(self) -> list[Burn]:
        """Return the burnt generations that the kill does not explain."""
        outside = set(self.verdict.burnt_outside([self.window]))
        return [
            burn
            for burn in self.verdict.burns
            if burn in outside or not self.was_refreshed_at_kill(burn.provider, burn.connection)
        ]

    def presented_too_often(self) -> list[GenerationCount]:
        """Return the generations presented more often than the policy allows, as far as their clients could know.

        The ledger treats a refusal as known once the kernel has its last byte. A client that is killed before it
        reads it does not know it, and may repeat its request.
        """
        return [count for count in self.verdict.violations if _excess(count) > self._unread_refusals(count)]

    def _unread_refusals(self, count: GenerationCount) -> int:
        from_mono, to_mono = self.window
        return self.was_refreshed_at_kill(count.provider, count.connection) * sum(
            (post.provider, post.connection, post.generation)
            == (count.provider, count.connection, count.generation)
            and post.kind == "refused"
            and from_mono <= (post.t_answered or 0.0) <= to_mono
            for post in posts_of(self.ledger)
        )

    def policies(self) -> list[dict[str, Any]]:
        """Return the figures of each replay policy."""
        lost = Counter(key.provider for key in self.lost())
        return [self._policy(provider, lost) for provider in PROVIDERS]

    def _policy(self, played: DemoProvider, lost: Mapping[str, int]) -> dict[str, Any]:
        provider = played.provider
        verdict = judge(self.ledger, provider=provider)
        credentials = [
            credential
            for credential in self.final.connections
            if credential.connection.key.provider == provider
        ]
        return {
            "policy": played.policy.value,
            "provider": provider,
            "connections": len(credentials),
            "generations": sum(credential.generation - 1 for credential in credentials),
            "provider_posts": verdict.provider_posts,
            "answered_failures": verdict.answered_failures,
            "lost_answers": verdict.lost_answers,
            # if a policy never spends a token, sending it again is no replay
            "replays": verdict.replays if played.policy.rotates else 0,
            "burnt": verdict.burnt,
            "lost_rotation": lost.get(provider, 0),
            "needs_reauth": sum(credential.state == "needs_reauth" for credential in credentials),
        }

    # ---- promises ------------------------------------------------------------------------------

    def violations(self, figures: Mapping[str, Any]) -> list[str]:
        """Return the violated promises as sentences."""
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
            "the jobs and refreshes of the killed worker were not taken over": figures["recovered_s"] is None,
            "a refresh that the killed worker had in flight never ended":
                figures["refreshes_settled_s"] is None,
            f"{self.verdict.unknown_tokens} requests carried a token that the issuer never gave":
                self.verdict.unknown_tokens > 0,
            f"callers met errors they should not: {dict(self.run.tally.surprises)}":
                bool(self.run.tally.surprises),
        }  # fmt: skip
        wrong += [sentence for sentence, is_wrong in checks.items() if is_wrong]
        codes = self.run.exit_codes.items()
        return wrong + [
            f"{name} ended with exit code {code} when asked to stop" for name, code in codes if code
        ]

    def _wrong_states(self) -> list[str]:
        """Return the differences between needs_reauth and leaving customers plus lost rotations, by name."""
        needs_reauth, lost = self.final.needs_reauth, set(self.lost())
        leaving = {account.key for account in self.run.leaving}
        wrong = [
            f"{key.tenant} {key.provider} {key.account}: needs its customer ({why}), which never left"
            for key, why in needs_reauth.items()
            if key not in leaving | lost
        ]
        missing = sorted(leaving - set(needs_reauth), key=str)
        wrong += [
            f"{key.tenant} {key.provider} {key.account}: left, and this was not noticed" for key in missing
        ]
        open_ends = [
            credential.connection.key
            for credential in self.final.connections
            if credential.state == "unknown"
        ]
        return wrong + [
            f"{key.tenant} {key.provider} {key.account}: its outcome is still unknown" for key in open_ends
        ]


def _excess(count: GenerationCount) -> int:
    return count.posts - 1 - count.answered_failures - count.unrotated - count.replays_allowed


def _rounded(length_s: float | None) -> float | None:
    return None if length_s is None else round(length_s, 2)
