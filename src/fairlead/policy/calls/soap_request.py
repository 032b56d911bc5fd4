"""SOAP requests: the envelope around a body, and the HTTP headers. Spec: C1.

No argument can end an element that it did not begin: values are escaped, names are checked, and XML text is
parsed by itself first. Sources: w3.org TR/2000/NOTE-SOAP-20000508,
TR/soap12-part1, TR/soap12-part2 §7.1.4 (action).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from xml.sax.saxutils import escape, quoteattr

from fairlead.errors import InvalidInputError
from fairlead.policy.text.names import shown
from fairlead.policy.text.safe_xml import InvalidXmlError, read_xml

SoapVersion = Literal["1.1", "1.2"]
Xml = str | Mapping[str, Any]
"""Elements as XML text, or as a mapping: see `envelope`."""

_ENVELOPES: Mapping[str, str] = {
    "1.1": "http://schemas.xmlsoap.org/soap/envelope/",
    "1.2": "http://www.w3.org/2003/05/soap-envelope",
}
_NAME = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_.-]*:)?[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_PREFIX = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_.-]*)?", re.ASCII)
_ACTION = re.compile(r"[!#-\[\]-~]{0,1000}", re.ASCII)
_OURS = "soapenv"
_DEEPEST = 100


def envelope(
    body: Xml,
    *,
    header: Xml | None = None,
    namespaces: Mapping[str, str] | None = None,
    version: SoapVersion = "1.1",
) -> bytes:
    """Return the message with *body* and *header*, as UTF-8.

    A mapping holds elements by name. A value is a text, a number, true or false, None (an empty element), a list
    (the element once for each entry), or another mapping, in which ``@name`` is an attribute and ``#text`` the text.

    Args:
        namespaces: Addresses by prefix; "" for names without a prefix.

    Raises:
        InvalidInputError: A part is not XML.

    >>> envelope({"get": {"@id": "1", "name": ["a & b", "c"]}}).partition(b"Body>")[2][:58]
    b'<get id="1"><name>a &amp; b</name><name>c</name></get></so'
    """
    if version not in _ENVELOPES:
        raise _wrong(f"{shown(version)} is no version of SOAP", f"take one of {', '.join(_ENVELOPES)}")
    declared = _declared(namespaces or {})
    above = "" if header is None else f"<{_OURS}:Header>{_checked(header, declared)}</{_OURS}:Header>"
    text = (
        '<?xml version="1.0" encoding="utf-8"?>'
        f'<{_OURS}:Envelope xmlns:{_OURS}="{_ENVELOPES[version]}"{declared}>'
        f"{above}<{_OURS}:Body>{_checked(body, declared)}</{_OURS}:Body></{_OURS}:Envelope>"
    )
    return text.encode()


def soap_headers(action: str, version: SoapVersion = "1.1") -> dict[str, str]:
    """Return the HTTP headers of a message for *action*; "" if the service expects none.

    >>> soap_headers("get")["soapaction"], soap_headers("get", "1.2")
    ('"get"', {'content-type': 'application/soap+xml; charset=utf-8; action="get"'})
    """
    text: object = action
    if not isinstance(text, str) or not _ACTION.fullmatch(text):
        raise _wrong("the action of a SOAP call is none", "give it as the WSDL has it: soapAction")
    if version == "1.2":
        behind = f'; action="{action}"' if action else ""
        return {"content-type": f"application/soap+xml; charset=utf-8{behind}"}
    return {"content-type": "text/xml; charset=utf-8", "soapaction": f'"{action}"'}


def _declared(namespaces: Mapping[str, str]) -> str:
    if not isinstance(namespaces, Mapping):
        raise _wrong("the namespaces of a SOAP message are no mapping", "give addresses by prefix")
    if not all(isinstance(text, str) for text in (*namespaces, *namespaces.values())):
        raise _wrong("a namespace of a SOAP message is no text", "give addresses by prefix")
    for prefix in namespaces:
        if not _PREFIX.fullmatch(prefix) or prefix == _OURS or prefix.lower().startswith("xml"):
            raise _wrong(f"{prefix!r} is no prefix of a namespace", "take letters and digits")
    return "".join(
        f" xmlns{':' if prefix else ''}{prefix}={quoteattr(uri)}" for prefix, uri in namespaces.items()
    )


def _checked(xml: Xml, declared: str) -> str:
    """Return *xml* as complete elements, so that nothing in it ends an element around it."""
    text = xml if isinstance(xml, str) else "".join(_elements(xml, 0))
    try:
        read_xml(f"<part{declared}>{text}</part>")
    except InvalidXmlError as refused:
        hint = "give whole elements without a declaration; declare their prefixes in `namespaces`"
        raise _wrong(f"a part of the SOAP message is no XML: {refused}", hint) from None
    return text


def _elements(mapping: Mapping[str, Any], depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise _wrong("a SOAP message nests too deep", f"keep to {_DEEPEST} levels")
    if not isinstance(mapping, Mapping):
        raise _wrong(f"{type(mapping).__name__} is no element of XML", "give XML, or a mapping")
    for name, value in mapping.items():
        if not isinstance(name, str):
            raise _wrong(f"{type(name).__name__} is no name of an XML element", "give names as texts")
        if name.startswith("@") or name == "#text":
            continue
        many = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else (value,)
        for item in many:
            yield _element(_name(name), item, depth)


def _element(name: str, value: Any, depth: int) -> str:
    if not isinstance(value, Mapping):
        inside = _text(value)
        return f"<{name}>{inside}</{name}>" if inside else f"<{name}/>"
    inside = _text(value.get("#text")) + "".join(_elements(value, depth + 1))
    attributes = "".join(
        f" {_name(key[1:])}={quoteattr(_plain(attribute))}"
        for key, attribute in value.items()
        if key.startswith("@")
    )
    return f"<{name}{attributes}>{inside}</{name}>" if inside else f"<{name}{attributes}/>"


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise _wrong(f"{name[:80]!r} is no name of an XML element", "take names as the WSDL has them")
    return name


def _text(value: Any) -> str:
    return "" if value is None else escape(_plain(value))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, Enum):
        with suppress(ValueError):  # Python writes no numbers of thousands of digits
            return str(value)
    raise _wrong(f"a {type(value).__name__} is no value of XML", "give texts and numbers")


def _wrong(message: str, hint: str) -> InvalidInputError:
    return InvalidInputError(message, hint=hint)
