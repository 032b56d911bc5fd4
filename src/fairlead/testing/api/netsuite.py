"""NetSuite: one limit of calls in flight for each account, REST, SOAP and RESTlets together.

    {api.url}/{account}/services/rest/record/v1/salesOrder?limit=&offset=
    {api.url}/{account}/services/rest/system/v1/governanceLimits
    {api.url}/{account}/app/site/hosting/restlet.nl?script=1&deploy=1
    {api.url}/{account}/services/NetSuitePort_2024_2              SOAP

The same refusal has four forms, as at the vendor.
Sources: docs.oracle.com NetSuite bridgehead_1525252812, section_1525253248, article_0625010817 (limits and
faults), section_156414087576 (pages).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from fairlead.testing.api.catalogue import ORDERS
from fairlead.testing.api.vendor_api import ApiRequest, ApiResponse, Route, VendorApi

XML = "text/xml; charset=utf-8"
_CODE = "SSS_REQUEST_LIMIT_EXCEEDED"
_MESSAGE = "The maximum number of concurrent requests has been exceeded. Please try again later."
_PAGE, _LARGEST_PAGE = 1000, 1000
_DETAIL = {
    "ExceededConcurrentRequestLimitFault": "WS_REQUEST_BLOCKED",
    "ExceededRequestLimitFault": "WS_CONCUR_SESSION_DISALLWD",
}
_ENVELOPE = (
    '<?xml version="1.0" encoding="utf-8"?>'
    '<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"><soapenv:Body>'
    "{}</soapenv:Body></soapenv:Envelope>"
)

SoapFault = Literal["ExceededConcurrentRequestLimitFault", "ExceededRequestLimitFault"]


class NetSuiteApi(VendorApi):
    """NetSuite's API.

    Args:
        limit: Calls in flight of each account.
        rest_status: The status of a refusal over REST.
        soap_fault: The first is for tokens, the second for sign-in by password.
    """

    name = "netsuite"

    def __init__(
        self,
        limit: int = 5,
        *,
        rest_status: Literal[429, 400] = 429,
        soap_fault: SoapFault = "ExceededConcurrentRequestLimitFault",
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self._limit = limit
        self._rest_status = rest_status
        self._soap_fault: str = soap_fault

    def routes(self) -> Iterable[Route]:
        return (
            ("GET", "/services/rest/record/v1/{record}", self._records),
            ("GET", "/services/rest/system/v1/governanceLimits", self._governance),
            ("*", "/app/site/hosting/restlet.nl", self._restlet),
            ("POST", "/services/NetSuitePort_{version}", self._soap),
        )

    def unauthorised(self, call: ApiRequest) -> ApiResponse:
        headers = {"WWW-Authenticate": 'Bearer realm="api", error="invalid_token"'}
        return ApiResponse(_problem(401, "INVALID_LOGIN", "Invalid login attempt."), 401, headers)

    async def absent(self, call: ApiRequest) -> ApiResponse:
        return ApiResponse(_problem(404, "NONEXISTENT_ID", "The record does not exist."), 404)

    def _full(self, call: ApiRequest) -> bool:
        return self.ledger.in_flight(call.account) >= self.slots(self._limit)

    async def _records(self, call: ApiRequest) -> ApiResponse:
        if self._full(call):
            return self._rest_refusal()
        await self.serve(call)
        limit = call.number("limit", _PAGE, most=_LARGEST_PAGE) or _PAGE
        offset = call.number("offset", 0, most=1 << 31)
        page = ORDERS[offset : offset + limit]
        here = f"{self.url}{call.request.path}"
        links = [{"rel": "self", "href": f"{here}?limit={limit}&offset={offset}"}]
        if offset + limit < len(ORDERS):
            links.append({"rel": "next", "href": f"{here}?limit={limit}&offset={offset + limit}"})
        items = [
            {"id": str(order.number), "links": [{"rel": "self", "href": f"{here}/{order.number}"}]}
            for order in page
        ]
        return ApiResponse(
            {
                "links": links,
                "count": len(page),
                "hasMore": offset + limit < len(ORDERS),
                "items": items,
                "offset": offset,
                "totalResults": len(ORDERS),
            }
        )

    async def _governance(self, call: ApiRequest) -> ApiResponse:
        if self._full(call):
            return self._rest_refusal()
        await self.serve(call)
        limit = self.slots(self._limit)
        return ApiResponse(
            {
                "accountConcurrencyLimit": limit,
                "accountUnallocatedConcurrencyLimit": limit,
                "integrationLimitType": "accountLimit",
            }
        )

    def _rest_refusal(self) -> ApiResponse:
        body = _problem(self._rest_status, _CODE, _MESSAGE)
        return ApiResponse(body, self._rest_status, refused="concurrency")

    async def _restlet(self, call: ApiRequest) -> ApiResponse:
        plain = call.request.content_type == "text/plain"
        if self._full(call):
            if plain:
                text = f"error code: {_CODE}\nerror message: {_MESSAGE}"
                return ApiResponse(text, 400, content_type="text/plain", refused="concurrency")
            error = {"error": {"code": _CODE, "message": _MESSAGE}}
            return ApiResponse(error, 400, refused="concurrency")
        await self.serve(call)
        if plain:
            return ApiResponse("ok", content_type="text/plain")
        return ApiResponse({"success": True, "script": call.parameter("script"), "told": call.json})

    async def _soap(self, call: ApiRequest) -> ApiResponse:
        if self._full(call):
            return ApiResponse(self._fault(), 500, content_type=XML, refused="concurrency")
        await self.serve(call)
        body = (
            '<getResponse xmlns="urn:messages_2024_2.platform.webservices.netsuite.com"><readResponse>'
            '<status isSuccess="true"/></readResponse></getResponse>'
        )
        return ApiResponse(_ENVELOPE.format(body), content_type=XML)

    def _fault(self) -> str:
        name = self._soap_fault
        detail = name[0].lower() + name[1:]
        return _ENVELOPE.format(
            f"<soapenv:Fault><faultcode>soapenv:Server.userException</faultcode><faultstring>{_MESSAGE}"
            "</faultstring><detail>"
            f'<fault:{detail} xmlns:fault="urn:faults_2024_2.platform.webservices.netsuite.com">'
            f"<fault:code>{_DETAIL[name]}</fault:code>"
            f"<fault:message>{_MESSAGE}</fault:message></fault:{detail}>"
            "</detail></soapenv:Fault>"
        )


def _problem(status: int, code: str, detail: str) -> dict[str, object]:
    return {
        "type": "https://www.rfc-editor.org/rfc/rfc9110.html#section-15",
        "title": detail,
        "status": status,
        "o:errorDetails": [{"detail": detail, "o:errorCode": code}],
    }
