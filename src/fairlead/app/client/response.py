"""The response of a call, read like one of httpx, with its classification."""

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
from fairlead.policy.text.safe_xml import InvalidXmlError, read_xml


class Response:
    """The response of a call that succeeded, whole or in part. A failed call raises CallFailedError."""

    def __init__(self, result: CallResult, *, tenant: str, provider: str) -> None:
        self._result = result
        self._tenant, self._provider = tenant, provider

    def __repr__(self) -> str:
        return f"<Response [{self.status_code}]>"

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        return self._result.response.status

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """Header values by name in any case; several lines of one name are joined by a comma."""
        return Headers(self._result.response.headers)

    @property
    def content(self) -> bytes:
        """The body, decoded as its Content-Encoding says."""
        return self._result.response.body

    @cached_property
    def text(self) -> str:
        """The body as text, by the charset of its Content-Type, else UTF-8; invalid bytes become U+FFFD."""
        return text_of(self.content, declared_codec(self._result.response.headers))

    def json(self) -> Any:
        """Return the body as JSON.

        Raises:
            ResponseDecodingError: It is not JSON.
        """
        if self._result.raw_response.text is not None:
            raise self._unreadable("the response is not JSON", call_reasons.NOT_JSON.code)
        return self._result.raw_response.body

    @cached_property
    def xml(self) -> Element:
        """The body as XML, with names as ``{namespace}local``.

        Raises:
            ResponseDecodingError: It is not XML, or has a DTD.
        """
        try:
            declared = declared_codec(self._result.response.headers)
            return read_xml(self.content if declared is None else text_of(self.content, declared))
        except InvalidXmlError as error:
            raise self._unreadable(f"the response is not XML: {error}", call_reasons.NOT_XML.code) from None

    @property
    def data(self) -> Any:
        """``data`` of a GraphQL response; None if it has none."""
        body = self._result.raw_response.body
        return body.get("data") if isinstance(body, dict) else None

    @property
    def raw_response(self) -> RawResponse:
        """The response as rules and limit dialects read it."""
        return self._result.raw_response

    @property
    def verdict(self) -> Verdict:
        """How it was classified, and by which rule."""
        return self._result.verdict

    @property
    def partial(self) -> bool:
        """True if some of its items failed; see `failed_items`."""
        return self._result.verdict.result is Result.PARTIAL

    @property
    def failed_items(self) -> Sequence[FailedItem]:
        """The items of a batch that failed; `verdict.items_to_retry` may be sent again."""
        return self._result.verdict.failed_items

    @property
    def attempts(self) -> int:
        """How often the call was sent."""
        return self._result.attempts

    @property
    def waited_s(self) -> float:
        """Seconds that it waited for credentials, limits and retries."""
        return self._result.waited_s

    def _unreadable(self, message: str, reason: str) -> ResponseDecodingError:
        return ResponseDecodingError(
            message,
            tenant=self._tenant,
            provider=self._provider,
            reason=reason,
            verdict=self.verdict,
            response=self._result.response,
            raw_response=self._result.raw_response,
            attempts=self.attempts,
        )
