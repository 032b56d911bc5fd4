"""Classification of one response: five steps in order, then the meaning of the status.

    protocol body → provider code → header → status → pattern → meaning of the status → unrecognised

No HTTP status classifies by itself: NetSuite refuses a limit with 400, Shopify with 200, and a 429 of Stripe may
be the lock of one object. So what the body says comes before the status. The step "status" has the rules that
name the status by number, those with a matching text first. The step "pattern" has the rules that name a class
of statuses and need a matching text. Spec: C3.
"""

from __future__ import annotations

import re
from dataclasses import replace

from fairlead.policy.calls.classify.batch import find_failed_items
from fairlead.policy.calls.classify.context import SHOWN, ClassificationContext, TraceStep
from fairlead.policy.calls.classify.error_fields import BodyError
from fairlead.policy.calls.classify.graphql import find_graphql_errors
from fairlead.policy.calls.classify.match import Match, match_rules
from fairlead.policy.calls.classify.rules import BUILT_IN, Rules, category_of
from fairlead.policy.calls.classify.soap_fault import find_soap_fault
from fairlead.policy.calls.classify.status import category_of_status, is_success
from fairlead.policy.calls.classify.user_errors import find_user_errors
from fairlead.policy.calls.classify.verdict import DONE, NO_MORE, LimitScope, Result, Step, Verdict
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
from fairlead.policy.reasons import call_reasons
from fairlead.policy.text.safe import safe_text

_BULK_RETRY_AFTER_S = 30.0  # as limits.bulk.retry_after_s has it: how soon a bulk operation may have ended
_SCOPES = {
    OBJECT: LimitScope.OBJECT,
    ENDPOINT: LimitScope.ENDPOINT,
    SEARCH: LimitScope.ENDPOINT,
    BULK: LimitScope.ENDPOINT,
}
_BY_CODE = frozenset({Step.PROTOCOL_BODY, Step.PROVIDER_CODE, Step.HEADER})
_SHOULD_RETRY = ("x-should-retry", "stripe-should-retry")
_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")


def classify(
    rules: Rules,
    response: RawResponse,
    observations: tuple[LimitObservation, ...] | None = None,
    *,
    now_epoch_s: float | None,
    trace: list[TraceStep] | None = None,
) -> Verdict:
    """Return what *response* means by *rules*. Never raises, whatever the response contains.

    Args:
        observations: What `parse_limits` has found in the response, if the caller has parsed it already.
        now_epoch_s: The Unix time, for instants in a response without a Date header.
        trace: A list that receives the steps that lead to the verdict. None: they are not recorded.
    """
    if observations is None:
        observations = parse_limits(rules.dialect, response, now_epoch_s=now_epoch_s)
    refusal = max((item for item in observations if item.refused), key=_weight, default=None)
    body_error = (
        find_graphql_errors(response)
        or find_soap_fault(response)
        or find_failed_items(response, rules.dialect, rules.by_code)
    )
    if body_error is None and refusal is None and rules.dialect == "shopify":
        body_error = find_user_errors(response, rules.by_code)
    failed = refusal is not None or body_error is not None or not is_success(response.status)
    if not failed and not rules.in_successes and trace is None:
        return DONE
    context = ClassificationContext(response, body_error, refusal, now_epoch_s, trace)
    context.trace_response(observations)
    if body_error is not None and body_error.partial:
        return _partial(context, body_error, rules)
    match = next(filter(None, (match_rules(context, level) for level in rules.levels)), None)
    if match is None and not failed:
        context.add_step("result", "nothing tells of a failure")
        return DONE
    verdict = _by_rule(context, match, rules) if match is not None else _by_status_meaning(context, rules)
    verdict = _apply_retry_header(context, verdict, rules)
    verdict = replace(verdict, scope=_scope(verdict, refusal), limit=refusal.limit if refusal else None)
    context.add_step("result", verdict.why)
    return verdict


def _by_rule(context: ClassificationContext, match: Match, rules: Rules) -> Verdict:
    """Return the verdict on a failure by the rule that matched, and by the limit that refused, if one did."""
    rule, refusal = match.rule, context.refusal
    category = category_of(rule, _meaning(context))
    strategy = rule.as_strategy()
    is_parked_limit = strategy.name is StrategyName.PARKED and category is Category.TRANSIENT_RATE_LIMIT
    is_daily = (
        is_parked_limit and (_hint_s(context) or strategy.nominal_s(0)) >= HINT_CAP_S
    )  # a daily limit pauses for longer
    if refusal is not None and refusal.limit == BULK and match.origin == BUILT_IN:
        strategy = Strategy(StrategyName.PARKED, later_s=_BULK_RETRY_AFTER_S)
    stated_code = match.evidence if match.step in (Step.PROTOCOL_BODY, Step.PROVIDER_CODE) else ""
    why = f"{rule.name} ({match.origin}), by {match.step}: {match.evidence}"
    return Verdict(
        Result.FAILED,
        rule.name,
        match.step,
        _why(context, why),
        category=category,
        code=_code(context, stated_code, is_ours=True),
        strategy=strategy,
        max_attempts=min(rule.max_attempts, rules.most_retries) if strategy.next is Next.RETRY else 0,
        takes_slot=rule.slots,
        hint_s=_hint_s(context),
        daily=is_daily or (refusal is not None and refusal.daily),
        health=_health(context, category),
        refused_before_acting=_never_acted(context, category, match.step),
    )


def _by_status_meaning(context: ClassificationContext, rules: Rules) -> Verdict:
    meaning = _meaning(context)
    category = meaning or Category.TRANSIENT_NETWORK
    by_body = context.body_error is not None and context.body_error.category is not None
    step = Step.PROTOCOL_BODY if by_body else Step.STATUS if meaning else Step.UNRECOGNISED
    stated_code = (
        context.body_error.codes[0] if context.body_error is not None and context.body_error.codes else ""
    )
    name = (
        context.body_error.protocol if context.body_error is not None else f"status {context.response.status}"
    )
    label = f"{name} {stated_code}".strip()
    words = (
        f"{label} means {category}{_redirect(context)}"
        if meaning
        else f"no rule knows {label}: it counts as {category}"
    )
    retried = category.transient and rules.strategy.next is not Next.OVER and rules.max_retries > 0
    return Verdict(
        Result.FAILED,
        name,
        step,
        _why(context, words),
        category=category,
        code=_code(context, stated_code),
        strategy=rules.strategy if retried else NO_MORE,
        max_attempts=rules.max_retries if retried and rules.strategy.next is Next.RETRY else 0,
        hint_s=_hint_s(context),
        health=_health(context, category),
        refused_before_acting=_never_acted(context, category, step),
        unclassified=meaning is None,
    )


def _apply_retry_header(context: ClassificationContext, verdict: Verdict, rules: Rules) -> Verdict:
    """Return *verdict* with the retry that a header of the vendor sets, and the same category."""
    headers = context.response.headers
    values = next((headers[name] for name in _SHOULD_RETRY if name in headers), ())
    if tuple(values) == ("false",):
        return replace(verdict, strategy=NO_MORE, max_attempts=0)
    if tuple(values) == ("true",) and verdict.next is Next.OVER and rules.strategy.next is Next.RETRY:
        return replace(verdict, strategy=rules.strategy, max_attempts=rules.max_retries)
    return verdict


def _partial(context: ClassificationContext, body_error: BodyError, rules: Rules) -> Verdict:
    """Return the verdict of a partial failure: only the items that may still succeed are retried."""
    retryable = [item.category for item in body_error.items if item.category.transient]
    category = body_error.category or (
        body_error.items[0].category if body_error.items else Category.TRANSIENT_NETWORK
    )
    counted = f"{len(body_error.items)} item(s) failed" if body_error.items else "a part failed"
    why = counted if body_error.readable else "which items failed cannot be read"
    verdict = Verdict(
        Result.PARTIAL,
        f"{body_error.protocol} in part",
        Step.PROTOCOL_BODY,
        _why(context, f"{body_error.protocol}: {why}"),
        category=retryable[0] if retryable else category,
        code=_code(context, body_error.codes[0] if body_error.codes else call_reasons.PARTIAL.code),
        strategy=rules.strategy if retryable else NO_MORE,
        max_attempts=rules.max_retries if retryable and rules.strategy.next is Next.RETRY else 0,
        hint_s=_hint_s(context),
        failed_items=body_error.items,
        unclassified=not body_error.readable,
    )
    context.add_step("result", verdict.why)
    return verdict


def _meaning(context: ClassificationContext) -> Category | None:
    """Return the category that the body's protocol gives, else that of the status."""
    if context.body_error is not None:
        return context.body_error.category
    return category_of_status(context.response.status)


def _hint_s(context: ClassificationContext) -> float | None:
    """Return the wait that the response asks for; None if there is none, or if it is 0."""
    refusal_s = context.refusal.wait_s if context.refusal is not None else None
    return refusal_s or retry_after_s(context.response, context.now_epoch_s) or None


def _health(context: ClassificationContext, category: Category) -> DestinationHealth:
    """Return UNHEALTHY only if the destination is down; a refusal or a limit does not count."""
    is_down = category is Category.TRANSIENT_SERVER or (
        category is Category.TRANSIENT_NETWORK
        and context.response.status >= 500
        and context.body_error is None
    )
    return DestinationHealth.UNHEALTHY if is_down else DestinationHealth.HEALTHY


def _never_acted(context: ClassificationContext, category: Category, step: Step) -> bool:
    """Return whether the provider refused before it ran anything.

    For a success or a 5xx only a code counts, because an error message may be about anything.
    """
    if category not in (Category.TRANSIENT_RATE_LIMIT, Category.PERMANENT_AUTH) or _executed(context):
        return False
    if step in _BY_CODE:
        return True
    return context.response.status < 500 and (
        context.response.status >= 400 or context.body_error is not None
    )


def _executed(context: ClassificationContext) -> bool:
    """Return whether the provider executed the request, at least in part."""
    if context.body_error is not None:
        return context.body_error.executed or context.body_error.partial
    if context.refusal is None or context.refusal.limit != BULK:
        return False
    data = member(context.response.body, "data")  # the other fields were run
    return isinstance(data, dict) and len(data) > 1


def _scope(verdict: Verdict, refusal: LimitObservation | None) -> LimitScope | None:
    """Return what the limit that refused the call is a limit of; None if no limit refused it."""
    if verdict.category is not Category.TRANSIENT_RATE_LIMIT:
        return None
    if verdict.daily:
        return LimitScope.DAY
    return _SCOPES.get(refusal.limit, LimitScope.CONNECTION) if refusal is not None else LimitScope.CONNECTION


def _weight(item: LimitObservation) -> tuple[bool, float]:
    """Return the sort key of a refusal: of two, the one that lasts longer counts."""
    return item.daily, item.wait_s or 0.0


# ---- texts


def _code(context: ClassificationContext, stated_code: str, *, is_ours: bool = False) -> str:
    """Return a short code that can be stored and counted: the provider's own if it looks like a code.

    *is_ours*: a rule or a dialect has that code, so it is not a secret that the provider echoes.
    """
    code = safe_text(stated_code, 64, mask_known=not is_ours)
    return code if _CODE.fullmatch(code) and stated_code else f"http_{context.response.status}"


def _redirect(context: ClassificationContext) -> str:
    """Return the note that a redirect was not followed."""
    return "; redirects are not followed" if 300 <= context.response.status < 400 else ""


def _why(context: ClassificationContext, decided: str) -> str:
    message = next(iter(context.messages), "")
    text = f"status {context.response.status}; {decided}"
    return safe_text(f"{text}; it says {safe_text(message, SHOWN)!r}" if message else text, 600)
