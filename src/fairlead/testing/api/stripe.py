"""A Stripe that counts: calls of the account, of each endpoint, in flight; it honours idempotency keys.

    {api.url}/{account}/v1/charges?limit=&starting_after=      GET; POST makes one
    {api.url}/{account}/v1/charges/search                      20 a second of its own
    {api.url}/{account}/v1/charges/{id}                        429 lock_timeout where `lock` locked it

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
    """One running API. *per_s*, *endpoint_per_s*: calls a second of the account and of each endpoint (both
    25, as in a sandbox). *search_per_s*: searches (20). *concurrency*: calls in flight (no limit)."""

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
        self._made: dict[str, list[dict[str, object]]] = {}
        self._keys: dict[tuple[str, str], tuple[object, ApiResponse | None]] = {}

    def routes(self) -> Iterable[Route]:
        """Charges: listed, made, searched, one."""
        return (
            ("GET", "/v1/charges", self._list),
            ("POST", "/v1/charges", self._make),
            ("GET", "/v1/charges/search", self._search),
            ("*", "/v1/charges/{id}", self._one),
        )

    def unauthorised(self, call: ApiRequest) -> ApiResponse:
        """As Stripe says it."""
        return ApiResponse(_error("invalid_request_error", "Invalid API Key provided"), 401)

    async def absent(self, call: ApiRequest) -> ApiResponse:
        """As Stripe says it."""
        return ApiResponse(
            _error("invalid_request_error", "Unrecognized request URL", "resource_missing"), 404
        )

    def made(self, account: str) -> int:
        """Charges that calls have made: what idempotency keys keep at one."""
        return len(self._made.get(account, ()))

    def _refusal(self, call: ApiRequest, endpoint: str, per_s: float) -> ApiResponse | None:
        account = call.account
        if self._concurrency is not None and self.ledger.in_flight(account) >= self.slots(self._concurrency):
            return _limited("global-concurrency")
        whole = self.bucket(account, "global", self._per_s, self._per_s)
        own = self.bucket(account, endpoint, per_s, per_s)
        if not own.holds():
            own.take()
            return _limited("endpoint-rate")
        return None if whole.take() and own.take() else _limited("global-rate")

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

    async def _one(self, call: ApiRequest) -> ApiResponse:
        if refusal := self._refusal(call, "charges", self._endpoint_per_s):
            return refusal
        name = call.part("id")
        if self.locked(name):
            told = "This object cannot be accessed right now because another API request is using it."
            body = _error("invalid_request_error", told, "lock_timeout")
            return ApiResponse(body, 429, {"Stripe-Should-Retry": "true"}, refused="object")
        await self.serve(call)
        found = next((one for one in self._charges(call.account) if one["id"] == name), None)
        return ApiResponse(found) if found else await self.absent(call)

    async def _make(self, call: ApiRequest) -> ApiResponse:
        """Once for each Idempotency-Key; the same key with another body is refused."""
        if refusal := self._refusal(call, "charges", self._endpoint_per_s):
            return refusal
        key = (call.account, call.request.headers.get("Idempotency-Key", ""))
        if key in self._keys:
            return self._again(call, key)
        if key[1]:
            self._keys[key] = (call.body, None)
        try:
            await self.serve(call)
        except BaseException:
            self._keys.pop(key, None)
            raise
        made = self._made.setdefault(call.account, [])
        told = dict(parse_qsl(call.body.decode(errors="replace")))
        made.append({"id": f"ch_new{len(made) + 1}", "object": "charge", "amount": told.get("amount")})
        answer = ApiResponse(made[-1])
        if key[1]:
            self._keys[key] = (call.body, answer)
        return answer

    def _again(self, call: ApiRequest, key: tuple[str, str]) -> ApiResponse:
        body, answer = self._keys[key]
        if body != call.body:
            told = "Keys for idempotent requests can only be used with the same parameters."
            return ApiResponse(_error("idempotency_error", told), 400)
        if answer is None:
            told = "There is currently another in-progress request using this Idempotent Key."
            return ApiResponse(_error("idempotency_error", told, "idempotency_key_in_use"), 409)
        return ApiResponse(answer.body, answer.status, {"Idempotent-Replayed": "true"})

    def _charges(self, account: str) -> list[dict[str, object]]:
        """Newest first, as the vendor lists them."""
        known = [
            {"id": f"ch_{one.number}", "object": "charge", "amount": one.cents} for one in reversed(ORDERS)
        ]
        return [*reversed(self._made.get(account, [])), *known]

    def _page(self, call: ApiRequest) -> dict[str, object]:
        rows, after = self._charges(call.account), call.asked("starting_after")
        place = next((index + 1 for index, one in enumerate(rows) if one["id"] == after), 0)
        count = call.number("limit", _PAGE, most=_LARGEST_PAGE) or 1
        more = place + count < len(rows)
        return {"object": "list", "data": rows[place : place + count], "has_more": more, "url": "/v1/charges"}


def _limited(reason: str) -> ApiResponse:
    body = _error("rate_limit_error", "Too many requests. Please slow down.", "rate_limit")
    return ApiResponse(body, 429, {"Stripe-Rate-Limited-Reason": reason}, refused=reason)


def _error(kind: str, message: str, code: str | None = None) -> dict[str, object]:
    error = {"type": kind, "message": message}
    return {"error": error if code is None else {**error, "code": code}}
