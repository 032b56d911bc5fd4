"""Stripe: limits of the account, of each endpoint and of calls in flight; it honours idempotency keys.

    {api.url}/{account}/v1/charges?limit=&starting_after=      GET; POST creates one
    {api.url}/{account}/v1/charges/search                      20 a second of its own
    {api.url}/{account}/v1/charges/{id}                        429 lock_timeout if `lock` locked it

Sources: docs.stripe.com/rate-limits, /api/idempotent_requests, /api/pagination; reference/gate.md §6.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl

from fairlead.testing.api.catalogue import ORDERS
from fairlead.testing.api.vendor_api import ApiRequest, ApiResponse, Route, VendorApi

_PAGE, _LARGEST_PAGE = 10, 100


class StripeApi(VendorApi):
    """Stripe's API, by default with the limits of a sandbox.

    Args:
        per_s: Calls a second of the account.
        endpoint_per_s: Calls a second of each endpoint.
        search_per_s: Searches a second.
        concurrency: Calls in flight; None: no limit.
    """

    name = "stripe"

    def __init__(
        self,
        per_s: float = 25,
        *,
        endpoint_per_s: float = 25,
        search_per_s: float = 20,
        concurrency: int | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self._per_s, self._endpoint_per_s, self._search_per_s = per_s, endpoint_per_s, search_per_s
        self._concurrency = concurrency
        self._created: dict[str, list[dict[str, object]]] = {}
        self._keys: dict[tuple[str, str], tuple[object, ApiResponse | None]] = {}

    def routes(self) -> Iterable[Route]:
        return (
            ("GET", "/v1/charges", self._list),
            ("POST", "/v1/charges", self._create),
            ("GET", "/v1/charges/search", self._search),
            ("*", "/v1/charges/{id}", self._charge),
        )

    def unauthorised(self, call: ApiRequest) -> ApiResponse:
        return ApiResponse(_error("invalid_request_error", "Invalid API Key provided"), 401)

    async def absent(self, call: ApiRequest) -> ApiResponse:
        return ApiResponse(
            _error("invalid_request_error", "Unrecognized request URL", "resource_missing"), 404
        )

    def created(self, account: str) -> int:
        """Return the number of charges that calls have created; idempotency keys keep it at one."""
        return len(self._created.get(account, ()))

    def _refusal(self, call: ApiRequest, endpoint: str, per_s: float) -> ApiResponse | None:
        account = call.account
        if self._concurrency is not None and self.ledger.in_flight(account) >= self.slots(self._concurrency):
            return _limited("global-concurrency")
        account_bucket = self.bucket(account, "global", self._per_s, self._per_s)
        endpoint_bucket = self.bucket(account, endpoint, per_s, per_s)
        if not endpoint_bucket.holds():
            endpoint_bucket.take()  # it counts the refusal
            return _limited("endpoint-rate")
        return None if account_bucket.take() and endpoint_bucket.take() else _limited("global-rate")

    async def _list(self, call: ApiRequest) -> ApiResponse:
        if refusal := self._refusal(call, "charges", self._endpoint_per_s):
            return refusal
        await self.serve(call)
        return ApiResponse(self._page(call))

    async def _search(self, call: ApiRequest) -> ApiResponse:
        if refusal := self._refusal(call, "search", self._search_per_s):
            return refusal
        await self.serve(call)
        return ApiResponse({**self._page(call), "object": "search_result"})

    async def _charge(self, call: ApiRequest) -> ApiResponse:
        if refusal := self._refusal(call, "charges", self._endpoint_per_s):
            return refusal
        name = call.part("id")
        if self.locked(name):
            message = "This object cannot be accessed right now because another API request is using it."
            body = _error("invalid_request_error", message, "lock_timeout")
            return ApiResponse(body, 429, {"Stripe-Should-Retry": "true"}, refused="object")
        await self.serve(call)
        charge = next((row for row in self._charges(call.account) if row["id"] == name), None)
        return ApiResponse(charge) if charge else await self.absent(call)

    async def _create(self, call: ApiRequest) -> ApiResponse:
        """Create a charge once for each Idempotency-Key; refuse the same key with another body."""
        if refusal := self._refusal(call, "charges", self._endpoint_per_s):
            return refusal
        key = (call.account, call.request.headers.get("Idempotency-Key", ""))
        if key in self._keys:
            return self._replay(call, key)
        if key[1]:
            self._keys[key] = (call.body, None)
        try:
            await self.serve(call)
        except BaseException:
            self._keys.pop(key, None)
            raise
        charges = self._created.setdefault(call.account, [])
        form = dict(parse_qsl(call.body.decode(errors="replace")))
        charges.append({"id": f"ch_new{len(charges) + 1}", "object": "charge", "amount": form.get("amount")})
        response = ApiResponse(charges[-1])
        if key[1]:
            self._keys[key] = (call.body, response)
        return response

    def _replay(self, call: ApiRequest, key: tuple[str, str]) -> ApiResponse:
        body, response = self._keys[key]
        if body != call.body:
            message = "Keys for idempotent requests can only be used with the same parameters."
            return ApiResponse(_error("idempotency_error", message), 400)
        if response is None:
            message = "There is currently another in-progress request using this Idempotent Key."
            return ApiResponse(_error("idempotency_error", message, "idempotency_key_in_use"), 409)
        return ApiResponse(response.body, response.status, {"Idempotent-Replayed": "true"})

    def _charges(self, account: str) -> list[dict[str, object]]:
        """Return all charges, the newest first, as the vendor lists them."""
        charges = [
            {"id": f"ch_{order.number}", "object": "charge", "amount": order.cents}
            for order in reversed(ORDERS)
        ]
        return [*reversed(self._created.get(account, [])), *charges]

    def _page(self, call: ApiRequest) -> dict[str, object]:
        rows, cursor = self._charges(call.account), call.parameter("starting_after")
        start = next((index + 1 for index, row in enumerate(rows) if row["id"] == cursor), 0)
        count = call.number("limit", _PAGE, most=_LARGEST_PAGE) or 1
        more = start + count < len(rows)
        return {"object": "list", "data": rows[start : start + count], "has_more": more, "url": "/v1/charges"}


def _limited(reason: str) -> ApiResponse:
    body = _error("rate_limit_error", "Too many requests. Please slow down.", "rate_limit")
    return ApiResponse(body, 429, {"Stripe-Rate-Limited-Reason": reason}, refused=reason)


def _error(kind: str, message: str, code: str | None = None) -> dict[str, object]:
    error = {"type": kind, "message": message}
    return {"error": error if code is None else {**error, "code": code}}
