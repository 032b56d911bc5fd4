"""Faults of SOAP 1.1 and 1.2: the status is 500 in any case, and the fault names the party at fault.

XML is searched, not parsed. The code of the fault names the sender or the receiver; the provider's code is an
element of the detail, or the name of one. NetSuite responds with 200 and ``isSuccess="false"`` for a failed
operation, and for each failed record of a list. If some of these lie beyond the part that is read, the result only
says that items failed.

Source: w3.org TR/soap12-part1 §5.4, TR/2000/NOTE-SOAP-20000508 §4.4; NetSuite WSDL FaultCodeType;
developer.salesforce.com api/sforce_api_calls_concepts_core_data_objects (ExceptionCode).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from fairlead.policy.calls.classify.error_fields import BodyError
from fairlead.policy.calls.classify.verdict import FailedItem
from fairlead.policy.failures.category import Category
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.limits.feedback.readers import LONGEST_TEXT, elements

_PREFIX = r"(?:[A-Za-z_][A-Za-z0-9_.-]{0,63}:)?"
_FAULT = re.compile(rf"<{_PREFIX}Fault[\s>]")
_NAMED = re.compile(rf"<{_PREFIX}([A-Za-z]{{1,60}}Fault)[\s/>]")
_STATUS = re.compile(rf'<{_PREFIX}status\s[^<>]{{0,200}}?isSuccess="(true|false)"')
_RESPONSE = re.compile(rf"<{_PREFIX}(?:read|write)Response[\s>]")
_FAILED, _DONE = 'isSuccess="false"', 'isSuccess="true"'
_SENDER = ("client", "sender", "mustunderstand", "versionmismatch")
_RECEIVER = ("server", "receiver")


def find_soap_fault(response: RawResponse) -> BodyError | None:
    """Return the error of a SOAP fault, or of a failed operation of NetSuite; None if there is neither."""
    if not response.is_markup:
        return None
    text = (response.text or "")[:LONGEST_TEXT]
    fault = _FAULT.search(text)
    if fault is not None:
        return _fault(text[fault.start() :])
    if response.status != 200 or not response.may_contain(_FAILED):
        return None
    unread = _unread(response, text, _FAILED)
    return _operation(text, response, unread) if unread or _FAILED in text else None


def _fault(text: str) -> BodyError:
    elements_found = list(elements(text, "faultcode", "Value", "faultstring", "Text"))
    fault_codes = [
        value.rpartition(":")[2] for name, value in elements_found if name in ("faultcode", "Value")
    ]
    words = [value for name, value in elements_found if name in ("faultstring", "Text")]
    detail = list(elements(text, "code", "exceptionCode", "message", "exceptionMessage"))
    codes = [value.rpartition(":")[2] for name, value in detail if name in ("code", "exceptionCode")]
    named = [name[0].upper() + name[1:] for name in _NAMED.findall(text) if name.lower() != "fault"]
    words += [value for name, value in detail if name in ("message", "exceptionMessage")]
    return BodyError("SOAP fault", _once(*codes, *named, *fault_codes), _once(*words), _blame(fault_codes))


def _blame(codes: list[str]) -> Category | None:
    for code in codes:
        kind, _, more = code.lower().partition(".")
        if kind in _SENDER or more.startswith("userexception"):  # Axis: the application's own refusal
            return Category.PERMANENT_REQUEST
        if kind in _RECEIVER:
            return Category.TRANSIENT_SERVER
    return None


def _unread(response: RawResponse, text: str, word: str) -> bool:
    """Return whether the response contains *word* beyond *text*, its beginning."""
    return response.count(word) > text.count(word)


def _operation(text: str, response: RawResponse, unread: bool) -> BodyError:
    """Return the error of a failed operation, or of a list with failed records; *unread*: others may have failed."""
    starts = [match.start() for match in _RESPONSE.finditer(text)]
    records = [text[start:end] for start, end in pairwise([*starts, len(text)])]
    items = tuple(_failed(records))
    codes = _once(*(value for _, value in elements(text, "code")))
    messages = _once(*(value for _, value in elements(text, "message")))
    partial = len(items) < len(records) or _unread(response, text, _DONE) or (unread and not records)
    shown_items = items if partial and not unread else ()
    readable = not (partial and unread)
    return BodyError(
        "SOAP status", codes, messages, Category.PERMANENT_REQUEST, partial, shown_items, readable
    )


def _failed(records: list[str]) -> Iterator[FailedItem]:
    for index, record in enumerate(records):
        status = _STATUS.search(record)
        if status is not None and status[1] == "false":
            code = next((value for _, value in elements(record, "code")), "failed")
            yield FailedItem(index, code, Category.PERMANENT_REQUEST)


def _once(*texts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))[:64]
