"""Which rule of a level matches an answer, and by what sign: five steps in their order (C3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.policy.calls.classify.context import Case
from fairlead.policy.calls.classify.error_fields import at
from fairlead.policy.calls.classify.rules import BUILT_IN, Level
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
    sign: str


def found_in(case: Case, level: Level) -> Match | None:
    """The first rule of *level* that matches, in the order of the steps."""
    held = [
        rule for rule in level.patterns if case.said or matches_status(rule.http_codes, case.reply.status)
    ]
    match = next(_matches(case, level, held), None)
    seen = f"{match.rule.name}, by {match.step}: {match.sign}" if match else "none of its rules matches"
    case.note(f"rules: {level.origin}", seen)
    return match


def _matches(case: Case, level: Level, held: list[Pattern]) -> Iterator[Match]:
    if level.origin == BUILT_IN:
        yield from _by_dialect(case, level)
    if case.said is not None:
        yield from _by_codes(level, held, case.said.codes, Step.PROTOCOL_BODY)
    yield from _by_codes(level, held, case.codes, Step.PROVIDER_CODE)
    for rule in held:
        if rule.body is not None and (sign := _body_sign(case, rule)):
            yield Match(rule, level.origin, Step.PROVIDER_CODE, sign)
    for rule in held:
        if rule.header is not None and (sign := _header_sign(case, rule)):
            yield Match(rule, level.origin, Step.HEADER, sign)
    yield from _by_status(case, level, held)
    for rule in held:
        if sign := _words(case, level, rule):
            yield Match(rule, level.origin, Step.PATTERN, sign)


def _by_codes(level: Level, held: list[Pattern], codes: tuple[str, ...], step: Step) -> Iterator[Match]:
    for rule in held:
        for each in codes:
            if each in rule.provider_codes:
                yield Match(rule, level.origin, step, each)


def _by_dialect(case: Case, level: Level) -> Iterator[Match]:
    """What the provider's dialect heard refused: it knows codes and places that no list of ours has."""
    refusal = case.refusal
    if refusal is None:
        return
    name = "rate_limit_errors"
    if refusal.limit in (CONCURRENCY, ACCOUNT):
        name = "concurrency_errors"
    elif refusal.daily:
        name = "api_limit_errors"
    elif refusal.code is None and case.reply.status in (429, 503):
        return  # the status told it, and its words may tell more
    elif any(each in rule.provider_codes for rule in level.patterns for each in case.codes):
        return
    rule = next(rule for rule in level.patterns if rule.name == name)
    yield Match(rule, level.origin, _step_of(case, refusal), refusal.code or f"limit {refusal.limit}")


def _step_of(case: Case, refusal: LimitObservation) -> Step:
    """Where the dialect found it."""
    if refusal.code is None:
        return Step.STATUS
    if (case.said is not None and refusal.code in case.said.codes) or refusal.limit == BULK:
        return Step.PROTOCOL_BODY
    values = (value for told in case.reply.headers.values() for value in told)
    return Step.HEADER if refusal.code in values else Step.PROVIDER_CODE


def _by_status(case: Case, level: Level, held: list[Pattern]) -> Iterator[Match]:
    status = case.reply.status
    for rule in held:
        if status in rule.http_codes and (sign := _words(case, level, rule)):
            yield Match(rule, level.origin, Step.STATUS, f"{status} with {sign}")
    for rule in held:
        if matches_status(rule.alone, status):
            yield Match(rule, level.origin, Step.STATUS, str(status))


def _words(case: Case, level: Level, rule: Pattern) -> str:
    """The pattern that the messages match. "rateLimit is no argument" beside a code is not about a limit."""
    if level.origin == BUILT_IN and case.said is not None and not case.said.wordy:
        return ""
    for pattern in rule.patterns:
        if any(text_match(pattern).found_in(text) for text in case.messages):
            return repr(pattern)
    return ""


def _body_sign(case: Case, rule: Pattern) -> str:
    assert rule.body is not None
    wanted = rule.body.value
    for value in at(case.reply.body, tuple(rule.body.path.split("."))):
        seen = value is not None if wanted is None else type(value) is type(wanted) and value == wanted
        if seen:
            return rule.body.path
    return ""


def _header_sign(case: Case, rule: Pattern) -> str:
    assert rule.header is not None
    values = case.reply.headers.get(rule.header.name.lower(), ())
    wanted = rule.header.value
    is_told = bool(values) if wanted is None else any(text_match(wanted).found_in(value) for value in values)
    return rule.header.name if is_told else ""
