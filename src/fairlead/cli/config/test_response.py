"""``fairlead config test-response``: how a recorded response would be classified, and why. Spec: C3."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.assembly.providers import ProfileRegistry
from fairlead.cli.kit.exits import Exit
from fairlead.cli.kit.invocation import Invocation
from fairlead.cli.kit.names import Account, connection_key, provider_and_variant
from fairlead.cli.kit.output import fields_of
from fairlead.errors import InvalidInputError
from fairlead.policy.calls.classify.classifier import classify
from fairlead.policy.calls.classify.context import TraceStep
from fairlead.policy.calls.classify.recording import LARGEST, read_recording
from fairlead.policy.calls.classify.rules import Rules, rules_of

if TYPE_CHECKING:
    from fairlead.assembly.runtime import Runtime
    from fairlead.policy.calls.classify.verdict import Verdict
    from fairlead.policy.limits.feedback.raw_response import RawResponse

GENERIC = "generic_oauth2"
"""The profile with only the rules that ship for every provider."""
_SHOWN_DELAYS = 10
_LARGEST_DRAW = 0.999999


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
    """Show how a recorded response would be classified, and why. Nothing is sent, and nothing is changed."""
    if provider and connection:
        raise InvalidInputError(
            "both a provider and a connection are given", hint="leave --provider out: the connection has one"
        )
    response = _read_response(file)
    rules, factor = _of_connection(call, connection, account) if connection else _of_provider(call, provider)
    trace: list[TraceStep] = []
    verdict = classify(rules, response, now_epoch_s=datetime.now(UTC).timestamp(), trace=trace)
    record = verdict_record(verdict, response, factor)
    steps = [fields_of(step, "place=step seen=finding") for step in trace]
    if call.out.as_json:
        call.out.record({**record, "steps": steps})
        return None
    items, waits = record.pop("failed_items"), record["delays"]
    record["delays"] = [f"{wait['least_s']:.3g}-{wait['most_s']:.3g} s" for wait in waits]
    call.out.record(record)
    if items:
        call.out.heading("failed items")
        call.out.rows(items, ("index", "ref", "code", "category", "retried"))
    call.out.heading("step by step")
    call.out.rows(steps, ("place", "seen"))
    return None


def verdict_record(verdict: Verdict, response: RawResponse, factor: float) -> dict[str, Any]:
    """Return a verdict as a JSON record, with the fields that `Verdict` describes.

    *factor* scales the provider's delays.
    """
    return {
        "status": response.status,
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
        **fields_of(verdict, "takes_slot hint_s daily"),
        "scope": verdict.scope and verdict.scope.value,
        "limit": verdict.limit,
        "health": verdict.health.name.lower(),
        **fields_of(verdict, "refused_before_acting unclassified"),
        "failed_items": [
            {
                **fields_of(item, "index ref code"),
                "category": item.category.value,
                "retried": item.category.transient,
            }
            for item in verdict.failed_items
        ],
    }


def _delays(verdict: Verdict, factor: float) -> list[dict[str, float]]:
    """Return the shortest and longest possible wait before each retry, or before the job runs again."""
    strategy, hint_s, daily = verdict.strategy, verdict.hint_s, verdict.daily
    later = 1 if verdict.next == "later" else 0
    delays = []
    for attempt in range(min(_SHOWN_DELAYS, max(verdict.max_attempts, later))):
        bounds = [
            strategy.delay_s(attempt, draw=draw, hint_s=hint_s, daily=daily, factor=factor)
            for draw in (0.0, _LARGEST_DRAW)
        ]
        delays.append({"least_s": round(bounds[0], 3), "most_s": round(bounds[1], 3)})
    return delays


def _read_response(file: Path) -> RawResponse:
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
    """Return the rules and the backoff factor of a profile; without a name, those of every provider."""
    profile = ProfileRegistry(call.config().settings).profile(*provider_and_variant(name or GENERIC))
    return rules_of(profile), profile.backoff_factor


def _of_connection(call: Invocation, named: str, account: str) -> tuple[Rules, float]:
    """Return the rules and the backoff factor of the connection *named* TENANT/PROVIDER."""
    tenant, slash, provider = named.rpartition("/")
    if not slash:
        raise InvalidInputError("--connection is not TENANT/PROVIDER", hint="write --connection acme/stripe")
    key = connection_key(tenant, provider, account)

    async def work(runtime: Runtime) -> tuple[Rules, float]:
        await runtime.tokens.connections.get(key)  # NotFoundError, with its hint
        credential = await runtime.credentials.read(key)
        assert credential is not None  # `get` found it
        connection = credential.connection
        profile = runtime.profiles.profile(key.provider, connection.variant)
        return rules_of(profile, connection.settings, tenant=tenant), profile.backoff_factor

    return call.with_runtime(work)
