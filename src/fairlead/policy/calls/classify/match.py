"""Which rule of a level matches an answer, and by what sign: five steps in their order (C3)."""

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
    """The rule that decides, and the sign by which it was found."""

    rule: Pattern
    origin: str
    step: Step
    evidence: str


def match_rules(context: ClassificationContext, rule_set: RuleSet) -> Match | None:
    """The first rule of *level* that matches, in the order of the steps."""
    held = [
        rule
        for rule in rule_set.patterns
        if context.body_error or matches_status(rule.http_codes, context.response.status)
    ]
    match = next(_matches(context, rule_set, held), None)
    seen = f"{match.rule.name}, by {match.step}: {match.evidence}" if match else "none of its rules matches"
    context.note(f"rules: {rule_set.origin}", seen)
    return match


def _matches(context: ClassificationContext, rule_set: RuleSet, held: list[Pattern]) -> Iterator[Match]:
    if rule_set.origin == BUILT_IN:
        yield from _by_dialect(context, rule_set)
    if context.body_error is not None:
        yield from _by_codes(rule_set, held, context.body_error.codes, Step.PROTOCOL_BODY)
    yield from _by_codes(rule_set, held, context.codes, Step.PROVIDER_CODE)
    for rule in held:
        if rule.body is not None and (evidence := _body_evidence(context, rule)):
            yield Match(rule, rule_set.origin, Step.PROVIDER_CODE, evidence)
    for rule in held:
        if rule.header is not None and (evidence := _header_evidence(context, rule)):
            yield Match(rule, rule_set.origin, Step.HEADER, evidence)
    yield from _by_status(context, rule_set, held)
    for rule in held:
        if evidence := _pattern_evidence(context, rule_set, rule):
            yield Match(rule, rule_set.origin, Step.PATTERN, evidence)


def _by_codes(rule_set: RuleSet, held: list[Pattern], codes: tuple[str, ...], step: Step) -> Iterator[Match]:
    for rule in held:
        for each in codes:
            if each in rule.provider_codes:
                yield Match(rule, rule_set.origin, step, each)


def _by_dialect(context: ClassificationContext, rule_set: RuleSet) -> Iterator[Match]:
    """What the provider's dialect heard refused: it knows codes and places that no list of ours has."""
    refusal = context.refusal
    if refusal is None:
        return
    name = "rate_limit_errors"
    if refusal.limit in (CONCURRENCY, ACCOUNT):
        name = "concurrency_errors"
    elif refusal.daily:
        name = "api_limit_errors"
    elif refusal.code is None and context.response.status in (429, 503):
        return  # the status told it, and its words may tell more
    elif any(each in rule.provider_codes for rule in rule_set.patterns for each in context.codes):
        return
    rule = next(rule for rule in rule_set.patterns if rule.name == name)
    yield Match(rule, rule_set.origin, _step_of(context, refusal), refusal.code or f"limit {refusal.limit}")


def _step_of(context: ClassificationContext, refusal: LimitObservation) -> Step:
    """Where the dialect found it."""
    if refusal.code is None:
        return Step.STATUS
    if (context.body_error is not None and refusal.code in context.body_error.codes) or refusal.limit == BULK:
        return Step.PROTOCOL_BODY
    values = (value for told in context.response.headers.values() for value in told)
    return Step.HEADER if refusal.code in values else Step.PROVIDER_CODE


def _by_status(context: ClassificationContext, rule_set: RuleSet, held: list[Pattern]) -> Iterator[Match]:
    status = context.response.status
    for rule in held:
        if status in rule.http_codes and (evidence := _pattern_evidence(context, rule_set, rule)):
            yield Match(rule, rule_set.origin, Step.STATUS, f"{status} with {evidence}")
    for rule in held:
        if matches_status(rule.alone, status):
            yield Match(rule, rule_set.origin, Step.STATUS, str(status))


def _pattern_evidence(context: ClassificationContext, rule_set: RuleSet, rule: Pattern) -> str:
    """The pattern that the messages match. "rateLimit is no argument" beside a code is not about a limit."""
    if rule_set.origin == BUILT_IN and context.body_error is not None and not context.body_error.wordy:
        return ""
    for pattern in rule.patterns:
        if any(text_match(pattern).found_in(text) for text in context.messages):
            return repr(pattern)
    return ""


def _body_evidence(context: ClassificationContext, rule: Pattern) -> str:
    assert rule.body is not None
    wanted = rule.body.value
    for value in at(context.response.body, tuple(rule.body.path.split("."))):
        seen = value is not None if wanted is None else type(value) is type(wanted) and value == wanted
        if seen:
            return rule.body.path
    return ""


def _header_evidence(context: ClassificationContext, rule: Pattern) -> str:
    assert rule.header is not None
    values = context.response.headers.get(rule.header.name.lower(), ())
    wanted = rule.header.value
    is_told = bool(values) if wanted is None else any(text_match(wanted).found_in(value) for value in values)
    return rule.header.name if is_told else ""
