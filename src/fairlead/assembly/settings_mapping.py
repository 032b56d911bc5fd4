"""Maps the user's settings to those of the engine and the adapters. It decides and opens nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from uuid import UUID

from fairlead._core.secret import Secret
from fairlead.adapters.http import CALL_SETTINGS, AddressPolicy, TransportSettings
from fairlead.adapters.http.webhook import WEBHOOK_SETTINGS
from fairlead.assembly.settings import Settings
from fairlead.engine.jobs.handler import Handler
from fairlead.engine.jobs.pruner import Retention
from fairlead.engine.jobs.worker_settings import WorkerSettings
from fairlead.engine.ports import ClaimFilter, ConnectionKey, Schedule
from fairlead.engine.tokens.deps import RefreshSettings
from fairlead.errors import InvalidConfigError
from fairlead.policy.jobs.dead_letter import DEFAULT_DEAD_LETTER_RULES, DeadLetterRules
from fairlead.policy.text.names import SYSTEM_TENANT


def refresh_settings(settings: Settings) -> RefreshSettings:
    """Return the settings of refreshes."""
    table = settings.refresh
    return RefreshSettings(
        request_deadline_s=table.request_deadline_s,
        total_deadline_s=table.total_deadline_s,
        lease_s=table.lease_s,
        not_sent_delays_s=table.not_sent_delays_s,
        cooldown_s=table.cooldown_s,
        min_remaining_s=table.min_remaining_s,
        wait_s=table.wait_s,
        retry_dead_after_s=table.retry_dead_after_s,
        breaker_failures=table.breaker_failures,
        breaker_open_s=table.breaker_open_s,
        breaker_open_max_s=table.breaker_open_max_s,
    )


def worker_queues(settings: Settings, handlers: Iterable[Handler]) -> tuple[str, ...]:
    """Return the queues that a worker with *handlers* claims from."""
    others = {handler.queue for handler in handlers} - {"default"}
    return settings.worker.queues or ("default", *sorted(others))


def worker_settings(settings: Settings, queues: tuple[str, ...]) -> WorkerSettings:
    """Return the settings of a worker of *queues*."""
    worker = settings.worker
    return WorkerSettings(
        claims=ClaimFilter(queues, worker.kinds, worker.providers),
        concurrency=worker.concurrency,
        poll_s=worker.poll_s,
        grace_s=worker.shutdown_grace_s,
    )


def memory_limit_bytes(settings: Settings) -> int | None:
    """Return the memory that this process may use; None: the limit of the machine or container."""
    megabytes = settings.worker.memory_limit_mb
    return None if megabytes is None else megabytes * 1024 * 1024


def retention(settings: Settings) -> Retention:
    """Return how long finished data is stored."""
    table = settings.retention
    return Retention(
        jobs={"completed": table.completed_s, "cancelled": table.cancelled_s, "discarded": table.discarded_s},
        dead_letters_s=table.discarded_s,
        dead_letter_bound=table.dead_letter_bound,
        schedule_runs_s=table.schedule_runs_s,
    )


def dead_letter_rules(settings: Settings) -> DeadLetterRules:
    """Return when dead letters are replayed and given up automatically."""
    table, bound = settings.dead_letters, settings.retention.dead_letter_bound
    return DeadLetterRules(
        replay_window_s=table.replay_window_s,
        max_replays=table.max_replays,
        cool_down_s=table.cool_down_s,
        redrive_after_s=table.redrive_after_s,
        abandon_after_s=table.abandon_after_s,
        notice_before_s=table.notice_before_s,
        bound=bound,
        batch=min(DEFAULT_DEAD_LETTER_RULES.batch, bound),
    )


def schedules(settings: Settings) -> list[Schedule]:
    """Return fairlead's own schedules. Spec: T3."""
    table = settings.schedules
    return [
        _schedule("token.scan", table.refresh_scan, "token.scan", 1, {}),
        _schedule("token.scan.urgent", table.urgent_scan, "token.scan", 0, {"urgent_only": True}),
        _schedule("dead_letter.process", table.dead_letters, "dead_letter.process", 2, {}),
        _schedule("clean_up", table.clean_up, "clean_up", 3, {}),
    ]


def _schedule(name: str, expression: str, kind: str, priority: int, args: Mapping[str, Any]) -> Schedule:
    return Schedule(
        name=name, expression=expression, kind=kind, tenant_id=SYSTEM_TENANT, priority=priority, args=args
    )


def address_policy(settings: Settings) -> AddressPolicy:
    """Return which addresses may be called."""
    http = settings.http
    return AddressPolicy(allow_private=http.allow_private_addresses, extra_ports=frozenset(http.extra_ports))


def call_transport(settings: Settings) -> TransportSettings:
    """Return the limits of calls. A call that finds no free connection waits, then fails as unsent (`pool`)."""
    http = settings.http
    return replace(
        CALL_SETTINGS,
        max_connections=http.max_connections,
        max_per_host=min(http.max_connections_per_host, http.max_connections),
        max_header_bytes=http.max_header_bytes,
    )


def token_transport(settings: Settings) -> TransportSettings:
    """Return the limits of requests to token endpoints."""
    return TransportSettings(max_header_bytes=settings.http.max_header_bytes)


def webhook_transport(settings: Settings) -> TransportSettings:
    """Return the limits of requests to the receiver of webhooks."""
    return replace(WEBHOOK_SETTINGS, max_header_bytes=settings.http.max_header_bytes)


def webhook(settings: Settings) -> tuple[str, Secret] | None:
    """Return the URL of the webhook and the secret that signs it; None if none is set.

    Raises:
        InvalidConfigError: Only one of the two is set.
    """
    url, secret = settings.notifications.webhook_url, settings.notifications.webhook_secret
    if url is None and secret is None:
        return None
    if url is None or secret is None:
        raise InvalidConfigError(
            "notifications.webhook_url and notifications.webhook_secret go together",
            hint="set both: a receiver cannot trust an unsigned request",
        )
    return url.get_secret_value(), Secret(secret.get_secret_value())


def reauth_link(settings: Settings, key: ConnectionKey, connection_id: UUID) -> str | None:
    """Return the URL of the page where the customer reconnects this connection; None if none is set."""
    link = settings.notifications.reauth_link
    if link is None:
        return None
    values = {
        "tenant": key.tenant,
        "provider": key.provider,
        "account": key.account,
        "connection": str(connection_id),
    }
    for name, value in values.items():
        link = link.replace(f"{{{name}}}", quote(value, safe=""))
    return link
