"""What a call gave: read like a response of httpx, with what it was judged to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any
from xml.etree.ElementTree import Element

from fairlead.app.client.headers import Headers
from fairlead.engine.calls.request import CallResult
from fairlead.errors import ResponseDecodingError
from fairlead.policy.calls.classify.verdict import FailedItem, Result, Verdict
from fairlead.policy.limits.feedback.raw_response import RawResponse
from fairlead.policy.reasons import call_reasons
from fairlead.policy.text.charset import declared_codec, text_of
from fairlead.policy.text.safe_xml import XmlRefused, read_xml


class Response:
    """The answer to a call that succeeded, whole or in part; a call that failed raises CallFailedError."""

    def __init__(self, came: CallResult, *, tenant: str, provider: str) -> None:
        self._came = came
        self._tenant, self._provider = tenant, provider

    def __repr__(self) -> str:
        return f"<Response [{self.status_code}]>"

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        return self._came.response.status

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """Header values by name, in whatever case; those of several lines joined by a comma."""
        return Headers(self._came.response.headers)

    @property
    def content(self) -> bytes:
        """The body, decoded as its Content-Encoding says."""
        return self._came.response.body

    @cached_property
    def text(self) -> str:
        """The body as text, by the charset of its Content-Type, else UTF-8; invalid bytes become U+FFFD."""
        return text_of(self.content, declared_codec(self._came.response.headers))

    def json(self) -> Any:
        """The body as JSON. ResponseDecodingError where it is none."""
        if self._came.raw_response.text is not None:
            raise self._unreadable("the answer is no JSON", call_reasons.NOT_JSON.code)
        return self._came.raw_response.body

    @cached_property
    def xml(self) -> Element:
        """The body as XML, names being ``{namespace}local``. ResponseDecodingError for none, and for a DTD."""
        try:
            declared = declared_codec(self._came.response.headers)
            return read_xml(self.content if declared is None else text_of(self.content, declared))
        except XmlRefused as refused:
            raise self._unreadable(
                f"the answer cannot be read as XML: {refused}", call_reasons.NOT_XML.code
            ) from None

    @property
    def data(self) -> Any:
        """``data`` of a GraphQL answer; None where it has none."""
        body = self._came.raw_response.body
        return body.get("data") if isinstance(body, dict) else None

    @property
    def raw_response(self) -> RawResponse:
        """The same as patterns and dialects see it."""
        return self._came.raw_response

    @property
    def verdict(self) -> Verdict:
        """What it was judged to be, and by which rule."""
        return self._came.verdict

    @property
    def partial(self) -> bool:
        """Some of its items failed: `failed_items`."""
        return self._came.verdict.result is Result.PARTIAL

    @property
    def failed_items(self) -> Sequence[FailedItem]:
        """The items of a batch that were not done; `verdict.items_to_retry` may be sent again."""
        return self._came.verdict.failed_items

    @property
    def attempts(self) -> int:
        """How often the call was sent."""
        return self._came.attempts

    @property
    def waited_s(self) -> float:
        """How long it waited for credentials, limits and retries."""
        return self._came.waited_s

    def _unreadable(self, what: str, reason: str) -> ResponseDecodingError:
        return ResponseDecodingError(
            what,
            tenant=self._tenant,
            provider=self._provider,
            reason=reason,
            verdict=self.verdict,
            response=self._came.response,
            raw_response=self._came.raw_response,
            attempts=self.attempts,
        )
