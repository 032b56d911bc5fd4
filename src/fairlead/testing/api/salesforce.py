"""Salesforce: a limit of calls in 24 hours, and one of calls in flight that have taken 20 s or longer.

    {api.url}/{org}/services/data/v62.0/query?q=SELECT+Id+FROM+Order       2,000 rows a page, or batchSize
    {api.url}/{org}/services/data/v62.0/query/{locator}                    what nextRecordsUrl names
    {api.url}/{org}/services/data/v62.0/composite/sobjects                 POST: a result for each record

Sources: developer.salesforce.com app-limits-platform-api, api_rest headers_api_usage, dome_query,
headers_queryoptions; reference/gate.md §6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.policy.limits.feedback.raw_response import DAY_S
from fairlead.testing.api.catalogue import ORDERS
from fairlead.testing.api.leaky import RollingWindow
from fairlead.testing.api.vendor_api import ApiRequest, ApiResponse, Route, VendorApi

_CODE = "REQUEST_LIMIT_EXCEEDED"
_PAGE = 2000
_BATCH = re.compile(r"batchSize=([0-9]{1,4})")


class SalesforceApi(VendorApi):
    """Salesforce's API.

    Args:
        daily: Calls of 24 hours.
        long_calls: Calls in flight that have taken *long_s* seconds or longer.
    """

    name = "salesforce"

    def __init__(
        self, daily: int = 100_000, *, long_calls: int = 25, long_s: float = 20.0, **more: Any
    ) -> None:
        super().__init__(**more)
        self._daily, self._long_calls, self._long_s = daily, long_calls, long_s

    def routes(self) -> Iterable[Route]:
        data = "/services/data/{version}"
        return (
            ("GET", f"{data}/query", self._query),
            ("GET", data + "/query/{locator}", self._query),
            ("*", f"{data}/composite/sobjects", self._collection),
        )

    def unauthorised(self, call: ApiRequest) -> ApiResponse:
        return ApiResponse(_errors("INVALID_SESSION_ID", "Session expired or invalid"), 401)

    async def absent(self, call: ApiRequest) -> ApiResponse:
        return ApiResponse(_errors("NOT_FOUND", "The requested resource does not exist"), 404)

    def _day(self, org: str) -> RollingWindow:
        return self.window(org, "daily", self._daily, DAY_S)

    def _headers(self, call: ApiRequest) -> Mapping[str, str]:
        day = self._day(call.account)
        return {"Sforce-Limit-Info": f"api-usage={day.limit_now - day.remaining}/{day.limit_now}"}

    def _refusal(self, call: ApiRequest) -> ApiResponse | None:
        if self._long_running(call.account) >= self.slots(self._long_calls):
            message = "ConcurrentRequests (Concurrent API Requests) Limit exceeded."
            return self._refused(call, "concurrency", message)
        if not self._day(call.account).take():
            return self._refused(call, "daily", "TotalRequests Limit exceeded.")
        return None

    def _refused(self, call: ApiRequest, limit: str, message: str) -> ApiResponse:
        return ApiResponse(_errors(_CODE, message), 403, self._headers(call), refused=limit)

    def _long_running(self, org: str) -> int:
        """Return the number of calls that count; the vendor ignores those that have just begun."""
        if self.ledger.in_flight(org) < self.slots(self._long_calls):
            return 0
        limit_mono = self.clock.monotonic() - self._long_s
        return sum(
            call.ended_mono is None and call.admitted_mono is not None and call.admitted_mono <= limit_mono
            for call in self.ledger.of(org)
        )

    async def _query(self, call: ApiRequest) -> ApiResponse:
        if refusal := self._refusal(call):
            return refusal
        await self.serve(call)
        position = call.request.match_info.get("locator", "").rpartition("-")[2]
        start = int(position) if position.isdigit() else 0
        batch = _BATCH.search(call.request.headers.get("Sforce-Query-Options", ""))
        end = start + (max(1, int(batch[1])) if batch else _PAGE)
        version = call.part("version")
        rows = [
            {"attributes": {"type": "Order", "url": f"/services/data/{version}/sobjects/Order/{order.number}"},
             "Id": str(order.number)}
            for order in ORDERS[start:end]
        ]  # fmt: skip
        body: dict[str, object] = {"totalSize": len(ORDERS), "done": end >= len(ORDERS), "records": rows}
        if end < len(ORDERS):
            body["nextRecordsUrl"] = f"/services/data/{version}/query/01g000000000001-{end}"
        return ApiResponse(body, headers=self._headers(call))

    async def _collection(self, call: ApiRequest) -> ApiResponse:
        """Return a result for each record: the status is 200 although some fail."""
        if refusal := self._refusal(call):
            return refusal
        await self.serve(call)
        return ApiResponse([self._result(name) for name in call.ids("records")], headers=self._headers(call))

    def _result(self, name: str) -> dict[str, object]:
        order_ids = {str(order.number) for order in ORDERS}
        if name in order_ids and not self.locked(name):
            return {"id": name, "success": True, "errors": []}
        code, message = ("UNABLE_TO_LOCK_ROW", "unable to obtain exclusive access to this record")
        if name not in order_ids:
            code, message = ("INVALID_CROSS_REFERENCE_KEY", "invalid cross reference id")
        return {"success": False, "errors": [{"statusCode": code, "message": message, "fields": []}]}


def _errors(code: str, message: str) -> list[dict[str, str]]:
    return [{"message": message, "errorCode": code}]
