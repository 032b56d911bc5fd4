"""Answers as vendors give them, judged by the rules of their profiles."""

from __future__ import annotations

from typing import Any

from fairlead.policy.calls.classify.body import LazyResponse
from fairlead.policy.calls.classify.classifier import classify
from fairlead.policy.calls.classify.rules import Rules, rules_of
from fairlead.policy.calls.classify.verdict import Verdict
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.providers.pattern import Pattern
from fairlead.policy.providers.profile_load import load_profiles

PROFILES = load_profiles()
RULES = {name: rules_of(profile) for name, profile in PROFILES.items()}
PLAIN = RULES["generic_oauth2"]


def judged(reply: RawResponse, by: str | Rules = PLAIN, *, now_epoch_s: float | None = None) -> Verdict:
    """What *reply* means at a provider, or by rules of one's own."""
    return classify(RULES[by] if isinstance(by, str) else by, reply, now_epoch_s=now_epoch_s)


def own_rules(*patterns: dict[str, Any], provider: str = "generic_oauth2", **settings: Any) -> Rules:
    """The rules of a connection with *patterns* of its own."""
    return rules_of(PROFILES[provider], {"patterns": list(patterns), **settings}, tenant="acme")


def pattern(**changes: Any) -> dict[str, Any]:
    """A rule that says what it must."""
    return {
        "name": "mine",
        "http_codes": ["4xx"],
        "patterns": ["sold out"],
        "strategy": "constant",
        **changes,
    }


def checked(**changes: Any) -> Pattern:
    """The same, read."""
    return Pattern.model_validate(pattern(**changes))


def soap_fault(code: str, detail: str = "", words: str = "refused") -> RawResponse:
    """A fault as SOAP 1.1 has it, with status 500."""
    return RawResponse(
        500,
        text='<?xml version="1.0"?><s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>'
        f"<s:Fault><faultcode>{code}</faultcode><faultstring>{words}</faultstring>"
        f"<detail>{detail}</detail></s:Fault></s:Body></s:Envelope>",
    )


def netsuite_record(success: bool, code: str = "") -> str:
    """Return one record of a response to a list, with a code where it failed."""
    detail = (
        f"<c:statusDetail><c:code>{code}</c:code><c:message>no</c:message></c:statusDetail>" if code else ""
    )
    return (
        f'<m:writeResponse><c:status isSuccess="{str(success).lower()}">{detail}</c:status></m:writeResponse>'
    )


def salesforce_graph(name: str, done: Any, *parts: tuple[int, str]) -> dict[str, Any]:
    """Return the response to one graph; each part is a status and a code."""
    patterns = [
        {
            "httpStatusCode": status,
            "referenceId": code,
            "body": [{"errorCode": code}] if code else {"id": "1"},
        }
        for status, code in parts
    ]
    return {"graphId": name, "isSuccessful": done, "graphResponse": {"compositeResponse": patterns}}


def response_of(text: str) -> RawResponse:
    """Return a response with status 200 as the pipeline classifies it."""
    return LazyResponse(200, {}, text.encode()).excerpt()
