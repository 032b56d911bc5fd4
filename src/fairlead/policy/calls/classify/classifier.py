"""What one answer means: one way in, five places in their order, then what the status says (C3).

    protocol body → provider code → header → status → pattern → meaning of the status → unrecognised

One HTTP code never classifies by itself: NetSuite refuses a limit with 400, Shopify with 200, and a 429 of
Stripe may be the lock of one object. So what an answer says in its body stands before its status. In the step
"status" a rule counts that names the status by number: with words of it found first, by the status alone
else. The step "pattern" has the rules that name a class of statuses, by their words.
"""

from __future__ import annotations

import re
from dataclasses import replace

from fairlead.policy.calls.classify.batch import batch
from fairlead.policy.calls.classify.context import SHOWN, Case, Finding
from fairlead.policy.calls.classify.error_fields import Said
from fairlead.policy.calls.classify.graphql import graphql
from fairlead.policy.calls.classify.match import Match, found_in
from fairlead.policy.calls.classify.rules import BUILT_IN, Rules, category_of
from fairlead.policy.calls.classify.soap_fault import soap
from fairlead.policy.calls.classify.status import is_success, meaning_of
from fairlead.policy.calls.classify.user_errors import user_errors
from fairlead.policy.calls.classify.verdict import DONE, NO_MORE, Result, Scope, Step, Verdict
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.hint import HINT_CAP_S
from fairlead.policy.failures.strategy import Next, Strategy, StrategyName
from fairlead.policy.limits.breaker import DestinationHealth
from fairlead.policy.limits.feedback.dialect import parse_limits
from fairlead.policy.limits.feedback.raw_response import (
    BULK,
    ENDPOINT,
    OBJECT,
    SEARCH,
    LimitObservation,
    RawResponse,
    retry_after_s,
)
from fairlead.policy.limits.feedback.readers import member
from fairlead.policy.text.safe import safe_text

_BULK_AGAIN_S = 30.0  # as limits.bulk.again_s has it: how soon a bulk operation may have ended
_SCOPES = {OBJECT: Scope.OBJECT, ENDPOINT: Scope.ENDPOINT, SEARCH: Scope.ENDPOINT, BULK: Scope.ENDPOINT}
_BY_CODE = frozenset({Step.PROTOCOL_BODY, Step.PROVIDER_CODE, Step.HEADER})
_SHOULD_RETRY = ("x-should-retry", "stripe-should-retry")
_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")


def judge(
    rules: Rules,
    reply: RawResponse,
    told: tuple[LimitObservation, ...] | None = None,
    *,
    now_epoch_s: float | None,
    trail: list[Finding] | None = None,
) -> Verdict:
    """What *reply* means by *rules*. Never raises, whatever the answer holds.

    *told*: what ``policy.feedback`` heard in it, where the caller has asked already. *now_epoch_s*: our
    clock, for moments in answers without a Date header. *trail*: takes the way to the verdict, step by step.
    """
    if told is None:
        told = parse_limits(rules.dialect, reply, now_epoch_s=now_epoch_s)
    refusal = max((item for item in told if item.refused), key=_weight, default=None)
    said = graphql(reply) or soap(reply) or batch(reply, rules.dialect, rules.by_code)
    if said is None and refusal is None and rules.dialect == "shopify":
        said = user_errors(reply, rules.by_code)
    failed = refusal is not None or said is not None or not is_success(reply.status)
    if not failed and not rules.in_successes and trail is None:
        return DONE
    case = Case(reply, said, refusal, now_epoch_s, trail)
    case.note_beginning(told)
    if said is not None and said.partial:
        return _partial(case, said, rules)
    match = next(filter(None, (found_in(case, level) for level in rules.levels)), None)
    if match is None and not failed:
        case.note("result", "nothing tells of a failure")
        return DONE
    verdict = _by_rule(case, match, rules) if match is not None else _by_meaning(case, rules)
    verdict = _as_header_says(case, verdict, rules)
    verdict = replace(verdict, scope=_scope(verdict, refusal), limit=refusal.limit if refusal else None)
    case.note("result", verdict.why)
    return verdict


def _by_rule(case: Case, match: Match, rules: Rules) -> Verdict:
    rule, refusal = match.rule, case.refusal
    category = category_of(rule, _meaning(case))
    strategy = rule.as_strategy()
    is_limit = strategy.name is StrategyName.PARKED and category is Category.TRANSIENT_RATE_LIMIT
    is_day = (
        is_limit and (_hint_s(case) or strategy.nominal_s(0)) >= HINT_CAP_S
    )  # a daily limit pauses for longer
    if refusal is not None and refusal.limit == BULK and match.origin == BUILT_IN:
        strategy = Strategy(StrategyName.PARKED, later_s=_BULK_AGAIN_S)
    named = match.sign if match.step in (Step.PROTOCOL_BODY, Step.PROVIDER_CODE) else ""
    why = f"{rule.name} ({match.origin}), by {match.step}: {match.sign}"
    return Verdict(
        Result.FAILED,
        rule.name,
        match.step,
        _why(case, why),
        category=category,
        code=_code(case, named, is_ours=True),
        strategy=strategy,
        max_attempts=min(rule.max_attempts, rules.most_retries) if strategy.next is Next.RETRY else 0,
        takes_slot=rule.slots,
        hint_s=_hint_s(case),
        daily=is_day or (refusal is not None and refusal.daily),
        health=_health(case, category),
        refused_before_acting=_never_acted(case, category, match.step),
    )


def _by_meaning(case: Case, rules: Rules) -> Verdict:
    meaning = _meaning(case)
    category = meaning or Category.TRANSIENT_NETWORK
    by_body = case.said is not None and case.said.category is not None
    step = Step.PROTOCOL_BODY if by_body else Step.STATUS if meaning else Step.UNRECOGNISED
    named = case.said.codes[0] if case.said is not None and case.said.codes else ""
    name = case.said.protocol if case.said is not None else f"status {case.reply.status}"
    whole = f"{name} {named}".strip()
    words = (
        f"{whole} means {category}{_redirect(case)}"
        if meaning
        else f"no rule knows {whole}: it counts as {category}"
    )
    retried = category.transient and rules.strategy.next is not Next.OVER and rules.max_retries > 0
    return Verdict(
        Result.FAILED,
        name,
        step,
        _why(case, words),
        category=category,
        code=_code(case, named),
        strategy=rules.strategy if retried else NO_MORE,
        max_attempts=rules.max_retries if retried and rules.strategy.next is Next.RETRY else 0,
        hint_s=_hint_s(case),
        health=_health(case, category),
        refused_before_acting=_never_acted(case, category, step),
        unclassified=meaning is None,
    )


def _as_header_says(case: Case, verdict: Verdict, rules: Rules) -> Verdict:
    """Return *verdict* with the retry that a header of the vendor sets, and the same category."""
    told = next((case.reply.headers[name] for name in _SHOULD_RETRY if name in case.reply.headers), ())
    if tuple(told) == ("false",):
        return replace(verdict, strategy=NO_MORE, max_attempts=0)
    if tuple(told) == ("true",) and verdict.next is Next.OVER and rules.strategy.next is Next.RETRY:
        return replace(verdict, strategy=rules.strategy, max_attempts=rules.max_retries)
    return verdict


def _partial(case: Case, said: Said, rules: Rules) -> Verdict:
    """Some was done: only items that may still succeed are sent again, and never the whole."""
    again = [item.category for item in said.items if item.category.transient]
    named = said.category or (said.items[0].category if said.items else Category.TRANSIENT_NETWORK)
    counted = f"{len(said.items)} item(s) failed" if said.items else "a part failed"
    why = counted if said.readable else "which items failed cannot be read"
    verdict = Verdict(
        Result.PARTIAL,
        f"{said.protocol} in part",
        Step.PROTOCOL_BODY,
        _why(case, f"{said.protocol}: {why}"),
        category=again[0] if again else named,
        code=_code(case, said.codes[0] if said.codes else "partial"),
        strategy=rules.strategy if again else NO_MORE,
        max_attempts=rules.max_retries if again and rules.strategy.next is Next.RETRY else 0,
        hint_s=_hint_s(case),
        failed_items=said.items,
        unclassified=not said.readable,
    )
    case.note("result", verdict.why)
    return verdict


def _meaning(case: Case) -> Category | None:
    """What the answer says by itself: its body's protocol, else its status."""
    if case.said is not None:
        return case.said.category
    return meaning_of(case.reply.status)


def _hint_s(case: Case) -> float | None:
    """The wait that was asked for; None where there was none, or one of 0, which is no wait to keep to."""
    told_s = case.refusal.wait_s if case.refusal is not None else None
    return told_s or retry_after_s(case.reply, case.now_epoch_s) or None


def _health(case: Case, category: Category) -> DestinationHealth:
    """Only what says that the destination is down counts: not a refusal, however worded, and no limit."""
    is_down = category is Category.TRANSIENT_SERVER or (
        category is Category.TRANSIENT_NETWORK and case.reply.status >= 500 and case.said is None
    )
    return DestinationHealth.UNHEALTHY if is_down else DestinationHealth.HEALTHY


def _never_acted(case: Case, category: Category, step: Step) -> bool:
    """Return whether the provider refused before it ran anything.

    For a success or a 5xx only a code counts, because an error message may be about anything.
    """
    if category not in (Category.TRANSIENT_RATE_LIMIT, Category.PERMANENT_AUTH) or _executed(case):
        return False
    if step in _BY_CODE:
        return True
    return case.reply.status < 500 and (case.reply.status >= 400 or case.said is not None)


def _executed(case: Case) -> bool:
    """Return whether the provider executed the request, at least in part."""
    if case.said is not None:
        return case.said.executed or case.said.partial
    if case.refusal is None or case.refusal.limit != BULK:
        return False
    data = member(case.reply.body, "data")  # the other fields were run
    return isinstance(data, dict) and len(data) > 1


def _scope(verdict: Verdict, refusal: LimitObservation | None) -> Scope | None:
    if verdict.category is not Category.TRANSIENT_RATE_LIMIT:
        return None
    if verdict.daily:
        return Scope.DAY
    return _SCOPES.get(refusal.limit, Scope.CONNECTION) if refusal is not None else Scope.CONNECTION


def _weight(item: LimitObservation) -> tuple[bool, float]:
    """Of two limits that refused the one that holds longer counts."""
    return item.daily, item.wait_s or 0.0


# ---- words


def _code(case: Case, named: str, *, is_ours: bool = False) -> str:
    """Return a short code that can be stored and counted: the provider's own if it looks like a code.

    *is_ours*: a rule or a dialect names it, so it is not a secret that the provider echoes.
    """
    told = safe_text(named, 64, known=not is_ours)
    return told if _CODE.fullmatch(told) and named else f"http_{case.reply.status}"


def _redirect(case: Case) -> str:
    """A redirect is an answer: where it leads, only the vendor says."""
    return "; redirects are not followed" if 300 <= case.reply.status < 400 else ""


def _why(case: Case, decided: str) -> str:
    message = next(iter(case.messages), "")
    told = f"status {case.reply.status}; {decided}"
    return safe_text(f"{told}; it says {safe_text(message, SHOWN)!r}" if message else told, 600)
