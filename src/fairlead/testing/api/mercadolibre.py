"""Mercado Libre: a limit of calls for each application, and a refusal in plain text.

    {api.url}/{app}/users/me
    {api.url}/{app}/orders/search?offset=&limit=

The vendor publishes no figures; those here are invented.
Source: reference/gate.md §6 (Envoy's local rate limit: text/plain, 18 bytes).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairlead.testing.api.catalogue import ORDERS, amount
from fairlead.testing.api.vendor_api import ApiRequest, ApiResponse, Route, VendorApi

_CODE = "local_rate_limited"
_PAGE, _LARGEST_PAGE = 50, 50


class MercadoLibreApi(VendorApi):
    """Mercado Libre's API.

    Args:
        calls: Calls at once of each application.
        per_s: Calls a second of each application.
        refuses_in: "text", as its proxy does, or "json", as its gateway does.
    """

    name = "mercadolibre"

    def __init__(
        self, calls: float = 50, *, per_s: float = 10, refuses_in: str = "text", **more: Any
    ) -> None:
        super().__init__(**more)
        self._calls, self._per_s, self._refuses_in = calls, per_s, refuses_in

    def routes(self) -> Iterable[Route]:
        return (("GET", "/users/me", self._me), ("GET", "/orders/search", self._orders))

    def unauthorised(self, call: ApiRequest) -> ApiResponse:
        return ApiResponse(_error(401, "invalid access token", "unauthorized"), 401)

    async def absent(self, call: ApiRequest) -> ApiResponse:
        return ApiResponse(_error(404, "resource not found", "not_found"), 404)

    def _refusal(self, call: ApiRequest) -> ApiResponse | None:
        if self.bucket(call.account, "calls", self._calls, self._per_s).take():
            return None
        if self._refuses_in == "json":
            return ApiResponse(_error(429, _CODE, _CODE), 429, refused="calls")
        return ApiResponse(_CODE, 429, content_type="text/plain", refused="calls")

    async def _me(self, call: ApiRequest) -> ApiResponse:
        if refusal := self._refusal(call):
            return refusal
        await self.serve(call)
        return ApiResponse({"id": 1, "nickname": call.account})

    async def _orders(self, call: ApiRequest) -> ApiResponse:
        if refusal := self._refusal(call):
            return refusal
        await self.serve(call)
        offset = call.number("offset", 0, most=1 << 31)
        limit = call.number("limit", _PAGE, most=_LARGEST_PAGE)
        rows = [
            {"id": order.number, "total_amount": amount(order.cents)}
            for order in ORDERS[offset : offset + limit]
        ]
        paging = {"total": len(ORDERS), "offset": offset, "limit": limit}
        return ApiResponse({"results": rows, "paging": paging})


def _error(status: int, message: str, error: str) -> dict[str, object]:
    return {"message": message, "error": error, "status": status, "cause": []}
