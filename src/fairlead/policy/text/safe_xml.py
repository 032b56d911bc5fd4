"""Read untrusted XML without a DTD, and hence without entities, and with bounded depth.

A document type brings entities that grow without bound or name local files; no API needs one. The size is bounded
by the response that has the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

DEEPEST = 200


class InvalidXmlError(ValueError):
    """The text is not XML, or has a feature that is refused; the message has nothing of its content."""


def read_xml(text: str | bytes) -> Element:
    """Return the root of a document; names are ``{namespace}local``.

    >>> read_xml('<a xmlns="urn:x"><b c="1">2</b></a>').find("{urn:x}b").text
    '2'

    Raises:
        InvalidXmlError: It cannot be read.
    """
    return _Reader().read(text)


class _Reader:
    def __init__(self) -> None:
        self._builder = TreeBuilder()
        self._depth = 0
        self._parser = expat.ParserCreate(namespace_separator="}")
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._builder.data

    def read(self, text: str | bytes) -> Element:
        try:
            self._parser.Parse(text, True)
            return self._builder.close()
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise InvalidXmlError(f"line {error.lineno} is not well-formed ({reason})") from None
        except (LookupError, ValueError) as error:
            if isinstance(error, InvalidXmlError):
                raise
            raise InvalidXmlError("its encoding is not known") from None

    def _doctype(self, *_arguments: object) -> None:
        raise InvalidXmlError("it has a document type")

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise InvalidXmlError(f"it is deeper than {DEEPEST} elements")
        self._builder.start(_full(name), {_full(key): value for key, value in attributes.items()})

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._builder.end(_full(name))


def _full(name: str) -> str:
    return "{" + name if "}" in name else name
