"""Sends signed events (Standard Webhooks 1.0) by one POST; only the status of the response is read.

Only https is used, unless private addresses are allowed. No redirect is followed, and no connection is
reused: events are rare, so that an idle connection would often be dead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
from yarl import URL

from fairlead._core.secret import Secret
from fairlead.adapters.http.client_session import Proxies, TransportSettings, open_session
from fairlead.adapters.http.connector import InFlightRequest, current_request
from fairlead.adapters.http.http_failures import no_response
from fairlead.adapters.http.resolver import AddressPolicy, CheckedResolver
from fairlead.engine.ports import DialObserver, NoResponse, Webhook
from fairlead.errors import FairleadError, InvalidConfigError, NotSentError, TransientFailureError
from fairlead.policy.failures.category import Category
from fairlead.policy.failures.hint import server_hint
from fairlead.policy.failures.process_health import HINTS
from fairlead.policy.notifications.webhook import ID, SIGNATURE, TIMESTAMP, refusal, sign, signing_key

DEADLINE_S = 10.0
_PUBLIC_ONLY = AddressPolicy()
WEBHOOK_SETTINGS = TransportSettings(max_connections=20, max_per_host=20)


async def _sending(_session: aiohttp.ClientSession, context: Any, _params: object) -> None:
    """Trace hook on_request_headers_sent: awaited after connect and TLS, before the first byte."""
    context.trace_request_ctx.sent_mono = asyncio.get_running_loop().time()


class AiohttpWebhookSender:
    """The port WebhookSender on aiohttp's session. Create and use it in one event loop.

    Args:
        trust_env: Whether to obey HTTPS_PROXY and NO_PROXY.
        deadline_s: For the whole request.
        dials: An observer of each new connection.
        now: The wall clock of the signature's timestamp, in Unix seconds.

    Raises:
        InvalidConfigError: *url* or *secret* cannot be used.
    """

    def __init__(
        self,
        url: str,
        secret: Secret,
        settings: TransportSettings = WEBHOOK_SETTINGS,
        *,
        policy: AddressPolicy = _PUBLIC_ONLY,
        trust_env: bool = False,
        deadline_s: float = DEADLINE_S,
        dials: DialObserver | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._url, self._host = _checked(url, policy)
        self._key = signing_key(secret)
        self._policy = policy
        self._deadline_s = deadline_s
        self._now = now
        proxies = Proxies(trust_env)
        self._proxy = proxies.proxy_of(self._url.scheme, self._host)
        self._resolver = CheckedResolver(policy, exempt=proxies.hosts if self._proxy else (), threads=1)
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_sending)
        self._session = open_session(
            settings, self._resolver, None, reuse=False, dials=dials, trace_configs=[trace]
        )

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        await self._session.close()
        await self._resolver.close()

    async def send(self, webhook: Webhook) -> None:
        in_flight = InFlightRequest()
        token = current_request.set(in_flight)
        try:
            async with asyncio.timeout(self._deadline_s):
                status, hint_s = await self._post(webhook, in_flight)
        except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is an OSError
            raise self._delivery_error(no_response(error, in_flight), webhook) from None
        finally:
            current_request.reset(token)
        refused = refusal(status, retry_after_s=hint_s, tenant=webhook.tenant, provider=webhook.provider)
        if refused is not None:
            raise refused

    async def _post(self, webhook: Webhook, in_flight: InFlightRequest) -> tuple[int, float | None]:
        """Return the status and the requested delay.

        The body is not read; leaving the block closes the connection.
        """
        self._policy.check_literal(self._host)
        async with self._session.post(
            self._url,
            data=webhook.body,
            headers=self._headers(webhook),
            allow_redirects=False,
            proxy=self._proxy,
            trace_request_ctx=in_flight,
        ) as response:
            headers = {name.lower(): response.headers.getall(name) for name in set(response.headers)}
            return response.status, server_hint(headers, now_epoch_s=self._now())

    def _headers(self, webhook: Webhook) -> Mapping[str, str]:
        timestamp_s = int(self._now())  # of this attempt: receivers refuse timestamps that are minutes old
        return {
            "Content-Type": "application/json",
            "User-Agent": "fairlead",
            ID: webhook.event_id,
            TIMESTAMP: str(timestamp_s),
            SIGNATURE: sign(self._key, webhook.event_id, timestamp_s, webhook.body),
        }

    def _delivery_error(self, failure: NoResponse, webhook: Webhook) -> FairleadError:
        """Return the error for a delivery that has no response."""
        tenant, provider = webhook.tenant, webhook.provider
        if failure.kind == "refused_address":
            message = f"the webhook's receiver may not be called: {failure.why}"
            return InvalidConfigError(message, tenant=tenant, provider=provider, hint=_PRIVATE_HINT)
        if not failure.sent:
            hint = HINTS.get(failure.kind, "check notifications.webhook_url, and that this host reaches it")
            message = f"the webhook's receiver was not reached: {failure.why}"
            return NotSentError(message, tenant=tenant, provider=provider, hint=hint, reason=failure.kind)
        late = failure.kind == "timeout"
        why = f"did not respond within {self._deadline_s:g} s" if late else f"gave no response: {failure.why}"
        category = Category.TRANSIENT_NETWORK.value
        message = f"the webhook's receiver {why}"
        return TransientFailureError(message, tenant=tenant, provider=provider, category=category)


_PRIVATE_HINT = "use a public https address, or set http.allow_private_addresses"


def _checked(url: str, policy: AddressPolicy) -> tuple[URL, str]:
    """Return *url* and its host as the session reads them: `127\uff0e0\uff0e0\uff0e1` is an address to it."""
    try:
        parsed = URL(url)
        host = parsed.host
    except ValueError:
        parsed, host = URL(), None
    if not host or parsed.scheme not in ("http", "https") or parsed.port == 0:
        raise InvalidConfigError("notifications.webhook_url is no http or https address", hint=_PRIVATE_HINT)
    if parsed.user is not None or parsed.password is not None or "@" in parsed.authority:
        hint = "the signature shows who sends; leave them out"
        raise InvalidConfigError("notifications.webhook_url holds a user or password", hint=hint)
    if policy.scheme_refusal(parsed.scheme, host) is not None:
        raise InvalidConfigError("notifications.webhook_url is not https", hint=_PRIVATE_HINT)
    return parsed, host
