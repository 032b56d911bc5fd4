"""The user's settings in the engine's own words; nothing is decided or opened here."""

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
    """The coordinator's numbers."""
    given = settings.refresh
    return RefreshSettings(
        request_deadline_s=given.request_deadline_s,
        total_deadline_s=given.total_deadline_s,
        lease_s=given.lease_s,
        not_sent_delays_s=given.not_sent_delays_s,
        cooldown_s=given.cooldown_s,
        min_remaining_s=given.min_remaining_s,
        wait_s=given.wait_s,
        retry_dead_after_s=given.retry_dead_after_s,
        breaker_failures=given.breaker_failures,
        breaker_open_s=given.breaker_open_s,
        breaker_open_max_s=given.breaker_open_max_s,
    )


def worker_queues(settings: Settings, handlers: Iterable[Handler]) -> tuple[str, ...]:
    """The queues that a worker with *handlers* takes."""
    others = {handler.queue for handler in handlers} - {"default"}
    return settings.worker.queues or ("default", *sorted(others))


def worker_settings(settings: Settings, queues: tuple[str, ...]) -> WorkerSettings:
    """What a worker of *queues* takes, and how much at once."""
    given = settings.worker
    return WorkerSettings(
        claims=ClaimFilter(queues, given.kinds, given.providers),
        concurrency=given.concurrency,
        poll_s=given.poll_s,
        grace_s=given.shutdown_grace_s,
    )


def memory_limit_bytes(settings: Settings) -> int | None:
    """What the user allows this process; None: what the machine or container allows."""
    megabytes = settings.worker.memory_limit_mb
    return None if megabytes is None else megabytes * 1024 * 1024


def retention(settings: Settings) -> Retention:
    """How long ended work is kept."""
    kept = settings.retention
    return Retention(
        jobs={"completed": kept.completed_s, "cancelled": kept.cancelled_s, "discarded": kept.discarded_s},
        dead_letters_s=kept.discarded_s,
        dead_letter_bound=kept.dead_letter_bound,
        schedule_runs_s=kept.schedule_runs_s,
    )


def dead_letter_rules(settings: Settings) -> DeadLetterRules:
    """When dead letters are replayed and given up by themselves."""
    given = settings.dead_letters
    bound = settings.retention.dead_letter_bound
    return DeadLetterRules(
        replay_window_s=given.replay_window_s,
        max_replays=given.max_replays,
        cool_down_s=given.cool_down_s,
        redrive_after_s=given.redrive_after_s,
        abandon_after_s=given.abandon_after_s,
        notice_before_s=given.notice_before_s,
        bound=bound,
        batch=min(DEFAULT_DEAD_LETTER_RULES.batch, bound),
    )


def schedules(settings: Settings) -> list[Schedule]:
    """The fleet's own schedules (T3)."""
    given = settings.schedules
    return [
        _schedule("token.scan", given.refresh_scan, "token.scan", 1, {}),
        _schedule("token.scan.urgent", given.urgent_scan, "token.scan", 0, {"urgent_only": True}),
        _schedule("dead_letter.process", given.dead_letters, "dead_letter.process", 2, {}),
        _schedule("clean_up", given.clean_up, "clean_up", 3, {}),
    ]


def _schedule(name: str, expression: str, kind: str, priority: int, args: Mapping[str, Any]) -> Schedule:
    return Schedule(
        name=name, expression=expression, kind=kind, tenant_id=SYSTEM_TENANT, priority=priority, args=args
    )


def address_policy(settings: Settings) -> AddressPolicy:
    """Which addresses may be called."""
    given = settings.http
    return AddressPolicy(
        allow_private=given.allow_private_addresses, extra_ports=frozenset(given.extra_ports)
    )


def call_transport(settings: Settings) -> TransportSettings:
    """How many connections calls may have. A process without room for more has its calls wait (kind "pool"):
    that says nothing of the host, and they are tried again."""
    given = settings.http
    per_host = min(given.max_connections_per_host, given.max_connections)
    return replace(
        CALL_SETTINGS,
        max_connections=given.max_connections,
        max_per_host=per_host,
        max_header_bytes=given.max_header_bytes,
    )


def token_transport(settings: Settings) -> TransportSettings:
    """Return the limits of requests to token endpoints."""
    return TransportSettings(max_header_bytes=settings.http.max_header_bytes)


def webhook_transport(settings: Settings) -> TransportSettings:
    """Return the bounds of requests to the webhook's receiver."""
    return replace(WEBHOOK_SETTINGS, max_header_bytes=settings.http.max_header_bytes)


def webhook(settings: Settings) -> tuple[str, Secret] | None:
    """Where notices are posted and what signs them; InvalidConfigError for one without the other."""
    url, secret = settings.notifications.webhook_url, settings.notifications.webhook_secret
    if url is None and secret is None:
        return None
    if url is None or secret is None:
        raise InvalidConfigError(
            "notifications.webhook_url and notifications.webhook_secret go together",
            hint="set both: a receiver cannot trust what is not signed",
        )
    return url.get_secret_value(), Secret(secret.get_secret_value())


def reauth_link(settings: Settings, key: ConnectionKey, connection_id: UUID) -> str | None:
    """The page where a customer reconnects, with the connection filled in; None where none is set."""
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
