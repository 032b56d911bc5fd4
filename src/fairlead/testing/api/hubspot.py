"""HubSpot: a limit in a rolling window, one of a day, and one of search.

    {api.url}/{app}/crm/v3/objects/{type}?limit=&after=
    {api.url}/{app}/crm/v3/objects/{type}/search                        POST
    {api.url}/{app}/crm/v3/objects/{type}/batch/{read|update|...}       POST, 207 if a part fails
    {api.url}/{app}/crm/v3/objects/{type}/{id}                          423 if `lock` locked it

The day is a rolling one here; the vendor's ends at midnight of the account.
Sources: developers.hubspot.com docs/api/usage-details, docs/reference/api/other-resources/error-handling,
changelog 2018-11-06; reference/gate.md §6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.policy.limits.feedback.raw_response import DAY_S
from fairlead.testing.api.catalogue import ORDERS, Order
from fairlead.testing.api.leaky import RollingWindow
from fairlead.testing.api.vendor_api import ApiRequest, ApiResponse, Route, VendorApi

_PAGE, _LARGEST_PAGE = 10, 100
_LARGEST_BATCH = 100


class HubSpotApi(VendorApi):
    """HubSpot's API; each app has its own limits.

    Args:
        limit: Calls in any 10 s.
        daily: Calls of a day.
        search: Searches in any second.
    """

    name = "hubspot"

    def __init__(self, limit: int = 100, *, daily: int = 250_000, search: int = 4, **more: Any) -> None:
        super().__init__(**more)
        self._limit, self._daily, self._search_limit = limit, daily, search

    def routes(self) -> Iterable[Route]:
        objects = "/crm/v3/objects/{type}"
        return (
            ("GET", objects, self._list),
            ("POST", f"{objects}/search", self._search),
            ("POST", objects + "/batch/{act}", self._batch),
            ("*", objects + "/{id}", self._object),
        )

    def unauthorised(self, call: ApiRequest) -> ApiResponse:
        message = "The OAuth token used to make this call expired."
        return ApiResponse(_error(message, category="EXPIRED_AUTHENTICATION"), 401)

    async def absent(self, call: ApiRequest) -> ApiResponse:
        return ApiResponse(_error("resource not found", category="OBJECT_NOT_FOUND"), 404)

    def _rolling(self, app: str) -> RollingWindow:
        return self.window(app, "rolling", self._limit, 10.0)

    def _day(self, app: str) -> RollingWindow:
        return self.window(app, "daily", self._daily, DAY_S)

    def _refusal(self, call: ApiRequest) -> ApiResponse | None:
        """Count the call in window and day and return None, or return the refusal."""
        if not self._day(call.account).remaining:
            return self._refused(call, "daily", "DAILY")
        if not self._rolling(call.account).take():
            return self._refused(call, "rolling", "TEN_SECONDLY_ROLLING")
        self._day(call.account).take()
        return None

    def _refused(self, call: ApiRequest, limit: str, policy: str) -> ApiResponse:
        body = _error(
            f"You have reached your {policy.lower()} limit.", category="RATE_LIMITS", policyName=policy
        )
        headers = {} if limit == "search" else self._headers(call)
        return ApiResponse(body, 429, headers, refused=limit)

    def _headers(self, call: ApiRequest) -> Mapping[str, str]:
        rolling, day = self._rolling(call.account), self._day(call.account)
        return {
            "X-HubSpot-RateLimit-Max": str(rolling.limit_now),
            "X-HubSpot-RateLimit-Remaining": str(rolling.remaining),
            "X-HubSpot-RateLimit-Interval-Milliseconds": "10000",
            "X-HubSpot-RateLimit-Daily": str(day.limit_now),
            "X-HubSpot-RateLimit-Daily-Remaining": str(day.remaining),
        }

    async def _list(self, call: ApiRequest) -> ApiResponse:
        if refusal := self._refusal(call):
            return refusal
        await self.serve(call)
        start = call.number("after", 0, most=1 << 31)
        return ApiResponse(_page(call, start, call.number("limit", _PAGE, most=_LARGEST_PAGE), self.url),
                      headers=self._headers(call))  # fmt: skip

    async def _search(self, call: ApiRequest) -> ApiResponse:
        if not self.window(call.account, "search", self._search_limit, 1.0).take():
            return self._refused(call, "search", "SECONDLY")
        await self.serve(call)
        cursor, limit = (str(call.fields.get(name, "")) for name in ("after", "limit"))
        start, size = int(cursor) if cursor.isdigit() else 0, int(limit) if limit.isdigit() else _PAGE
        page = _page(call, start, size, self.url)
        return ApiResponse({"total": len(ORDERS), **page})

    async def _object(self, call: ApiRequest) -> ApiResponse:
        if refusal := self._refusal(call):
            return refusal
        name = call.part("id")
        if self.locked(name):
            return ApiResponse(_error("The object is locked.", category="LOCKED"), 423, self._headers(call),
                          refused="object")  # fmt: skip
        await self.serve(call)
        order = _order(name)
        return (
            ApiResponse(_as_object(order), headers=self._headers(call)) if order else await self.absent(call)
        )

    async def _batch(self, call: ApiRequest) -> ApiResponse:
        if refusal := self._refusal(call):
            return refusal
        inputs = call.ids("inputs")
        if not 0 < len(inputs) <= _LARGEST_BATCH:
            return ApiResponse(
                _error("Invalid input JSON", category="VALIDATION_ERROR"), 400, self._headers(call)
            )
        await self.serve(call)
        results = [_as_object(order) for name in inputs if not self.locked(name) and (order := _order(name))]
        errors = [self._item_error(name) for name in inputs if self.locked(name) or not _order(name)]
        body: dict[str, object] = {"status": "COMPLETE", "results": results}
        if errors:
            body |= {"numErrors": len(errors), "errors": errors}
        return ApiResponse(body, 207 if errors else 200, self._headers(call))

    def _item_error(self, name: str) -> dict[str, object]:
        locked = self.locked(name)
        message = "The object is locked." if locked else "Could not get some objects, they may be deleted."
        return _error(message, category="LOCKED" if locked else "OBJECT_NOT_FOUND", context={"ids": [name]})


def _page(call: ApiRequest, start: int, limit: int, url: str) -> dict[str, object]:
    rows = ORDERS[start : start + limit]
    body: dict[str, object] = {"results": [_as_object(order) for order in rows]}
    if start + limit < len(ORDERS):
        link = f"{url}{call.request.path}?limit={limit}&after={start + limit}"
        body["paging"] = {"next": {"after": str(start + limit), "link": link}}
    return body


def _order(name: str) -> Order | None:
    return next((order for order in ORDERS if str(order.number) == name), None)


def _as_object(order: Order) -> dict[str, object]:
    return {"id": str(order.number), "properties": {"email": order.email}, "archived": False}


def _error(message: str, **more: object) -> dict[str, object]:
    return {"status": "error", "message": message, "correlationId": "00000000-0000-0000-0000-000000000000",
            **more}  # fmt: skip
