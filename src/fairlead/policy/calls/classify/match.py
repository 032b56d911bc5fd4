"""The search for the rule of a rule set that matches a response: five steps in order. Spec: C3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.policy.calls.classify.context import ClassificationContext
from fairlead.policy.calls.classify.error_fields import at
from fairlead.policy.calls.classify.rules import BUILT_IN, RuleSet
from fairlead.policy.calls.classify.verdict import Step
from fairlead.policy.limits.feedback.raw_response import ACCOUNT, BULK, CONCURRENCY, LimitObservation
from fairlead.policy.providers.pattern import Pattern, matches_status
from fairlead.policy.text.text_match import text_match


@dataclass(frozen=True, slots=True)
class Match:
    """The rule that decides, and the evidence by which it matched."""

    rule: Pattern
    origin: str
    step: Step
    evidence: str


def match_rules(context: ClassificationContext, rule_set: RuleSet) -> Match | None:
    """Return the first rule of *rule_set* that matches, in the order of the steps."""
    status = context.response.status
    candidates = [
        rule for rule in rule_set.patterns if context.body_error or matches_status(rule.http_codes, status)
    ]
    match = next(_matches(context, rule_set, candidates), None)
    note = f"{match.rule.name}, by {match.step}: {match.evidence}" if match else "none of its rules matches"
    context.add_step(f"rules: {rule_set.origin}", note)
    return match


def _matches(context: ClassificationContext, rule_set: RuleSet, candidates: list[Pattern]) -> Iterator[Match]:
    if rule_set.origin == BUILT_IN:
        yield from _by_dialect(context, rule_set)
    if context.body_error is not None:
        yield from _by_codes(rule_set, candidates, context.body_error.codes, Step.PROTOCOL_BODY)
    yield from _by_codes(rule_set, candidates, context.codes, Step.PROVIDER_CODE)
    for rule in candidates:
        if rule.body is not None and (evidence := _body_evidence(context, rule)):
            yield Match(rule, rule_set.origin, Step.PROVIDER_CODE, evidence)
    for rule in candidates:
        if rule.header is not None and (evidence := _header_evidence(context, rule)):
            yield Match(rule, rule_set.origin, Step.HEADER, evidence)
    yield from _by_status(context, rule_set, candidates)
    for rule in candidates:
        if evidence := _pattern_evidence(context, rule_set, rule):
            yield Match(rule, rule_set.origin, Step.PATTERN, evidence)


def _by_codes(
    rule_set: RuleSet, candidates: list[Pattern], codes: tuple[str, ...], step: Step
) -> Iterator[Match]:
    for rule in candidates:
        for code in codes:
            if code in rule.provider_codes:
                yield Match(rule, rule_set.origin, step, code)


def _by_dialect(context: ClassificationContext, rule_set: RuleSet) -> Iterator[Match]:
    """Yield the rule for the limit that the dialect found refused: it knows more codes than the rules do."""
    refusal = context.refusal
    if refusal is None:
        return
    name = "rate_limit_errors"
    if refusal.limit in (CONCURRENCY, ACCOUNT):
        name = "concurrency_errors"
    elif refusal.daily:
        name = "api_limit_errors"
    elif refusal.code is None and context.response.status in (429, 503):
        return  # only the status says so, and the message may say more
    elif any(code in rule.provider_codes for rule in rule_set.patterns for code in context.codes):
        return
    rule = next(rule for rule in rule_set.patterns if rule.name == name)
    yield Match(rule, rule_set.origin, _step_of(context, refusal), refusal.code or f"limit {refusal.limit}")


def _step_of(context: ClassificationContext, refusal: LimitObservation) -> Step:
    """Return the step in which the dialect found the refusal."""
    if refusal.code is None:
        return Step.STATUS
    if (context.body_error is not None and refusal.code in context.body_error.codes) or refusal.limit == BULK:
        return Step.PROTOCOL_BODY
    values = (value for line in context.response.headers.values() for value in line)
    return Step.HEADER if refusal.code in values else Step.PROVIDER_CODE


def _by_status(
    context: ClassificationContext, rule_set: RuleSet, candidates: list[Pattern]
) -> Iterator[Match]:
    status = context.response.status
    for rule in candidates:
        if status in rule.http_codes and (evidence := _pattern_evidence(context, rule_set, rule)):
            yield Match(rule, rule_set.origin, Step.STATUS, f"{status} with {evidence}")
    for rule in candidates:
        if matches_status(rule.decisive_codes, status):
            yield Match(rule, rule_set.origin, Step.STATUS, str(status))


def _pattern_evidence(context: ClassificationContext, rule_set: RuleSet, rule: Pattern) -> str:
    """Return the pattern that a message matches.

    A message beside a code is not searched: "rateLimit is no argument" is not about a limit.
    """
    if rule_set.origin == BUILT_IN and context.body_error is not None and not context.body_error.wordy:
        return ""
    for pattern in rule.patterns:
        if any(text_match(pattern).found_in(text) for text in context.messages):
            return repr(pattern)
    return ""


def _body_evidence(context: ClassificationContext, rule: Pattern) -> str:
    """Return the path at which the body has the value of *rule*, or any value if the rule states none; else ""."""
    assert rule.body is not None
    expected = rule.body.value
    for value in at(context.response.body, tuple(rule.body.path.split("."))):
        is_match = (
            value is not None if expected is None else type(value) is type(expected) and value == expected
        )
        if is_match:
            return rule.body.path
    return ""


def _header_evidence(context: ClassificationContext, rule: Pattern) -> str:
    assert rule.header is not None
    values = context.response.headers.get(rule.header.name.lower(), ())
    expected = rule.header.value
    is_present = (
        bool(values) if expected is None else any(text_match(expected).found_in(value) for value in values)
    )
    return rule.header.name if is_present else ""
