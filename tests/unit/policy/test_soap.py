"""SOAP messages: what is given stays where it belongs; and XML of strangers, read safely."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidInputError
from fairlead.policy.calls.soap_request import envelope, soap_headers
from fairlead.policy.text.safe_xml import InvalidXmlError, read_xml

SOAP = "{http://schemas.xmlsoap.org/soap/envelope/}"
SOAP_12 = "{http://www.w3.org/2003/05/soap-envelope}"


def body_of(message: bytes, soap: str = SOAP) -> Element:
    root = read_xml(message)
    assert root.tag == f"{soap}Envelope"
    assert [part.tag for part in root if part.tag != f"{soap}Header"] == [f"{soap}Body"]
    return root[-1]


def test_a_mapping_becomes_elements() -> None:
    fields = {
        "m:get": {
            "@id": 'a"b<',
            "m:name": ["x & y", Decimal("1.50")],
            "flag": True,
            "none": None,
            "deep": {"@xmlns:q": "urn:q", "#text": "t", "q:r": {}},
        }
    }
    message = envelope(fields, namespaces={"m": "urn:m", "": "urn:d"})
    (get,) = body_of(message)
    assert (get.tag, get.attrib) == ("{urn:m}get", {"id": 'a"b<'})
    assert [(element.tag, element.text) for element in get] == [
        ("{urn:m}name", "x & y"),
        ("{urn:m}name", "1.50"),
        ("{urn:d}flag", "true"),
        ("{urn:d}none", None),
        ("{urn:d}deep", "t"),
    ]
    assert get[-1][0].tag == "{urn:q}r"


def test_xml_is_taken_as_it_is_and_stands_with_a_header() -> None:
    message = envelope("<a/>text<b/>", header="<m:h>1</m:h>", namespaces={"m": "urn:m"}, version="1.2")
    root = read_xml(message)
    assert [part.tag for part in root] == [f"{SOAP_12}Header", f"{SOAP_12}Body"]
    assert root[0][0].tag == "{urn:m}h"
    assert [element.tag for element in body_of(message, SOAP_12)] == ["a", "b"]


@pytest.mark.parametrize(
    "body",
    [
        "</soapenv:Body><soapenv:Body>",
        "</part><part>",
        "<!--",
        "<![CDATA[",
        "<a>",
        "<p:a/>",
        '<?xml version="1.0"?><a/>',
        '<!DOCTYPE a [<!ENTITY e "x">]><a>&e;</a>',
        "&e;",
        "a\x00b",
        {"a": "\x0b"},
        {"a b": 1},
        {"a><b": 1},
        {"p:a": 1},
        {"a": {"@on click": 1}},
        {"a": b"bytes"},
    ],
)
def test_body_that_breaks_out_of_the_envelope_is_refused(body: Any) -> None:
    with pytest.raises(InvalidInputError, match="hint"):
        envelope(body)
    with pytest.raises(InvalidInputError, match="hint"):
        envelope("<a/>", header=body)


def test_a_mapping_without_end_is_refused() -> None:
    fields: dict[str, Any] = {}
    fields["a"] = fields
    with pytest.raises(InvalidInputError, match="too deep"):
        envelope(fields)


@pytest.mark.parametrize("namespaces", [{"soapenv": "urn:x"}, {"a b": "urn:x"}, {"xmlns": "urn:x"}])
def test_prefixes_are_names(namespaces: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="prefix"):
        envelope("<a/>", namespaces=namespaces)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="￾￿")))
def test_any_text_comes_back_as_it_was(text: str) -> None:
    (element,) = body_of(envelope({"a": {"@b": text, "#text": text}}, namespaces={"n": "urn:a&b"}))
    assert element.get("b") == text
    assert (element.text or "") == text


def test_the_action_stands_where_its_version_has_it() -> None:
    assert soap_headers("urn:get")["soapaction"] == '"urn:get"'
    assert 'action="urn:get"' in soap_headers("urn:get", "1.2")["content-type"]
    assert soap_headers("")["soapaction"] == '""'
    for action in ('a"b', "a\r\nb", "ä"):
        with pytest.raises(InvalidInputError, match="action"):
            soap_headers(action)


# ---- XML of strangers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "document type"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "document type"),
        ("<a>" * 300 + "</a>" * 300, "deeper"),
        ("<a>&x;</a>", "not well-formed"),
        ("<a><b></a>", "not well-formed"),
        ("", "not well-formed"),
        ("hello", "not well-formed"),
        (b'<?xml version="1.0" encoding="wide"?><a/>', "not well-formed|encoding"),
        (b"<a>\xff</a>", "not well-formed"),
    ],
)
def test_dangerous_xml_is_refused(text: str | bytes, why: str) -> None:
    with pytest.raises(InvalidXmlError, match=why):
        read_xml(text)


def test_xml_with_an_encoding_or_xml_lang_is_read() -> None:
    assert read_xml('<?xml version="1.0" encoding="iso-8859-1"?><a>ñ</a>'.encode("latin-1")).text == "ñ"
    assert read_xml('<a xml:lang="de"/>').attrib == {"{http://www.w3.org/XML/1998/namespace}lang": "de"}
