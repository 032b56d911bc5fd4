"""NetSuite: calls in flight of one account, REST, SOAP and RESTlets together. It has no rate.

The same refusal comes in four dresses: REST 429, REST 400 with a code, RESTlet 400 in JSON or plain text, and
SOAP faults. Being out of service (ACCT_TEMP_UNAVAILABLE) says nothing of a limit, so it is ignored here.

``GET /services/rest/system/v1/governanceLimits`` states the limit itself: what an integration may use is its
own allocation, or what the account has not allocated to others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fairlead.policy.limits.feedback.raw_response import (
    ACCOUNT,
    CONCURRENCY,
    LimitObservation,
    RawResponse,
    refusal_wait_s,
)
from fairlead.policy.limits.feedback.readers import LONGEST_TEXT, elements, entries, member, number, word

_CODES = frozenset(
    {
        "SSS_REQUEST_LIMIT_EXCEEDED",
        "CONCURRENT_REQUEST_LIMIT_EXCEEDED",
        "WS_REQUEST_BLOCKED",
        "WS_CONCUR_SESSION_DISALLWD",
    }
)
_FAULTS = {
    "exceededrequestlimitfault": "ExceededRequestLimitFault",
    "exceededconcurrentrequestlimitfault": "ExceededConcurrentRequestLimitFault",
}
# Only what is said in a fault, or in the status of an operation, is an error: records have codes, too.
_ERROR = re.compile(r"<(?:[A-Za-z_][A-Za-z0-9_.-]{0,63}:)?([A-Za-z]{0,64}Fault|statusDetail)[\s/>]")
_PLAIN = re.compile(r"error code: ([A-Z_]{1,64})\b")


def netsuite(reply: RawResponse, now_epoch_s: float | None) -> tuple[LimitObservation, ...]:
    """Return the refusal of too many calls in flight, and the limit that governanceLimits states.

    Source: docs.oracle.com NetSuite bridgehead_1525252812, section_1525253248, article_0625010817.
    """
    code = next((code for code in _codes(reply) if code in _CODES or code in _FAULTS.values()), None)
    if code is not None or reply.status == 429:
        return (LimitObservation(CONCURRENCY, wait_s=refusal_wait_s(reply, now_epoch_s), code=code),)
    return tuple(_governance(reply)) if reply.status == 200 else ()


def _codes(reply: RawResponse) -> Iterator[str]:
    """Yield all error codes of the response, in every place where NetSuite states them."""
    if reply.status >= 400:
        for error in entries(member(reply.body, "o:errorDetails")):
            yield word(member(error, "o:errorCode"))
        for path in (("error", "code"), ("code",), ("name",)):
            yield word(member(reply.body, *path))
        if match := _PLAIN.match(reply.text or ""):
            yield match[1]
    if reply.is_markup:
        yield from _soap_codes((reply.text or "")[:LONGEST_TEXT])


def _soap_codes(text: str) -> Iterator[str]:
    error = _ERROR.search(text)
    if error is None:
        return
    for _, code in elements(text[error.start() :], "code", "faultcode"):
        yield code.rpartition(":")[2]
    for match in _ERROR.finditer(text):
        yield _FAULTS.get(match[1].lower(), "")


def _governance(reply: RawResponse) -> Iterator[LimitObservation]:
    if not reply.may_contain("accountConcurrencyLimit"):
        return
    account = number(member(reply.body, "accountConcurrencyLimit"), at_least=1)
    if account is None:
        return
    kind = member(reply.body, "integrationLimitType")
    # An internal application receives no limit.
    name = {
        "integrationSpecific": "integrationConcurrencyLimit",
        "accountLimit": "accountUnallocatedConcurrencyLimit",
    }.get(word(kind), "")
    capacity = number(member(reply.body, name), at_least=1)
    if capacity is not None:
        yield LimitObservation(CONCURRENCY, capacity=capacity)
    yield LimitObservation(ACCOUNT, capacity=account)
