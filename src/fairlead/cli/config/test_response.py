"""``fairlead config test-response``: how a recorded answer would be judged, and why, step by step (C3)."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.names import Account, connection_key, provider_and_variant
from fairlead.errors import InvalidInputError

if TYPE_CHECKING:
    from fairlead.app import Fairlead
    from fairlead.policy.calls.classify.rules import Rules
    from fairlead.policy.calls.classify.verdict import Verdict
    from fairlead.policy.limits.feedback.raw_response import RawResponse

GENERIC = "generic_oauth2"
"""The profile whose rules are those that ship for every provider."""
_SHOWN_DELAYS = 10
_LATEST = 0.999999


def try_response(
    call: Invocation,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A response as `curl -i` saves it, or JSON with status, headers, body; - is stdin.",
        ),
    ],
    provider: Annotated[
        str | None,
        typer.Option("--provider", "-p", help="By the rules of this provider. Default: what ships for all."),
    ] = None,
    connection: Annotated[
        str | None,
        typer.Option(
            "--connection", metavar="TENANT/PROVIDER", help="By the rules of this tenant's connection."
        ),
    ] = None,
    account: Account = "default",
) -> Exit | None:
    """Show how a recorded response would be judged, and why. Nothing is sent, and nothing is changed."""
    from fairlead.policy.calls.classify.classifier import classify
    from fairlead.policy.calls.classify.context import TraceStep

    if provider and connection:
        raise InvalidInputError(
            "both a provider and a connection are given", hint="a connection brings its provider"
        )
    reply = _recorded(file)
    rules, factor = _of_connection(call, connection, account) if connection else _of_provider(call, provider)
    trace: list[TraceStep] = []
    verdict = classify(rules, reply, now_epoch_s=time.time(), trace=trace)
    told = as_record(verdict, reply, factor)
    steps = [{"place": each.step, "seen": each.finding} for each in trace]
    if call.out.as_json:
        call.out.record({**told, "steps": steps})
        return None
    items, waits = told.pop("failed_items"), told["delays"]
    told["delays"] = [f"{wait['least_s']:.3g}-{wait['most_s']:.3g} s" for wait in waits]
    call.out.record(told)
    if items:
        call.out.heading("failed items")
        call.out.rows(items, ("index", "ref", "code", "category", "retried"))
    call.out.heading("step by step")
    call.out.rows(steps, ("place", "seen"))
    return None


def as_record(verdict: Verdict, reply: RawResponse, factor: float) -> dict[str, Any]:
    """A verdict as JSON has it. *factor*: the provider's scale of delays."""
    return {
        "status": reply.status,
        "result": verdict.result.value,
        "category": verdict.category and verdict.category.value,
        "code": verdict.code or None,
        "rule": verdict.rule,
        "step": verdict.step.value,
        "why": verdict.why,
        "strategy": verdict.strategy.name.value,
        "next": verdict.next.value,
        "max_attempts": verdict.max_attempts,
        "delays": _delays(verdict, factor),
        "takes_slot": verdict.takes_slot,
        "hint_s": verdict.hint_s,
        "daily": verdict.daily,
        "scope": verdict.scope and verdict.scope.value,
        "limit": verdict.limit,
        "health": verdict.health.name.lower(),
        "refused_before_acting": verdict.refused_before_acting,
        "unclassified": verdict.unclassified,
        "failed_items": [
            {
                "index": item.index,
                "ref": item.ref,
                "code": item.code,
                "category": item.category.value,
                "retried": item.category.transient,
            }
            for item in verdict.failed_items
        ],
    }


def _delays(verdict: Verdict, factor: float) -> list[dict[str, float]]:
    """The wait before each try, from the shortest to the longest that chance may give."""
    strategy, hint_s, daily = verdict.strategy, verdict.hint_s, verdict.daily
    later = 1 if verdict.next == "later" else 0
    told = []
    for attempt in range(min(_SHOWN_DELAYS, max(verdict.max_attempts, later))):
        bounds = [
            strategy.delay_s(attempt, draw=draw, hint_s=hint_s, daily=daily, factor=factor)
            for draw in (0.0, _LATEST)
        ]
        told.append({"least_s": round(bounds[0], 3), "most_s": round(bounds[1], 3)})
    return told


def _recorded(file: Path) -> RawResponse:
    from fairlead.policy.calls.classify.recording import LARGEST, read_recording

    if str(file) == "-":
        return read_recording(sys.stdin.buffer.read(LARGEST + 1))
    try:
        with file.open("rb") as opened:
            return read_recording(opened.read(LARGEST + 1))
    except OSError as error:
        raise InvalidInputError(
            f"{file} cannot be read: {error.strerror}", hint="name a file of yours"
        ) from None


def _of_provider(call: Invocation, name: str | None) -> tuple[Rules, float]:
    from fairlead.assembly.providers import ProfileRegistry
    from fairlead.policy.calls.classify.rules import rules_of

    book = ProfileRegistry(call.config().settings)
    profile = book.profile(*provider_and_variant(name or GENERIC))
    return rules_of(profile), profile.backoff_factor


def _of_connection(call: Invocation, named: str, account: str) -> tuple[Rules, float]:
    from fairlead.policy.calls.classify.rules import rules_of

    tenant, slash, provider = named.rpartition("/")
    if not slash:
        raise InvalidInputError("--connection is not TENANT/PROVIDER", hint="write --connection acme/stripe")
    key = connection_key(tenant, provider, account)

    async def work(fairlead: Fairlead) -> tuple[Rules, float]:
        runtime = fairlead.runtime
        await runtime.tokens.connections.get(key)  # NotFoundError, with its hint
        credential = await runtime.credentials.read(key)
        assert credential is not None  # it was there a moment ago
        found = credential.connection
        profile = runtime.profiles.profile(key.provider, found.variant)
        return rules_of(profile, found.settings, tenant=tenant), profile.backoff_factor

    return call.with_fairlead(work)
