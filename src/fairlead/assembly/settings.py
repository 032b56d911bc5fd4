"""The settings, each with its meaning and default. config.py reads them.

Unknown keys are refused. A secret is a SecretStr here and is passed on as a ``Secret``. Each secret may also
come from a file (``..._FILE``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fairlead._core.known_secrets import KNOWN_SECRETS
from fairlead.errors import InvalidInputError
from fairlead.policy.jobs.cron import parse_schedule
from fairlead.policy.providers.endpoint import LABEL

Seconds = Annotated[float, Field(gt=0, le=10 * 366 * 86_400)]
Port = Annotated[int, Field(ge=1, le=65_535)]
Host = Annotated[str, Field(max_length=253, pattern=rf"\A{LABEL}(?:\.{LABEL})*\z")]


def _takes_flag(annotation: Any) -> bool:
    return annotation in (bool, Any) or any(_takes_flag(part) for part in get_args(annotation))


class SettingsTable(BaseModel):
    """Base of all tables of the settings file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_flags(cls, value: object, info: ValidationInfo) -> object:
        """Refuse true and false in place of a number: pydantic would read 1 and 0."""
        if isinstance(value, bool) and not _takes_flag(cls.model_fields[str(info.field_name)].annotation):
            raise ValueError("true and false are not numbers")
        return value

    @model_validator(mode="after")
    def _pin_secrets(self) -> Self:
        for value in vars(self).values():
            if isinstance(value, SecretStr):
                KNOWN_SECRETS.pin(value.get_secret_value())
        return self


class DatabaseTable(SettingsTable):
    """PostgreSQL 15 or newer, which stores everything that must not be lost."""

    url: SecretStr | None = Field(
        None, min_length=1, description="DSN. Default none: the embedded server is started."
    )
    schema_name: str | None = Field(
        None, min_length=1, max_length=63, description="Schema of fairlead's tables. Default fairlead."
    )
    pool_size: int = Field(
        8, ge=2, le=200, description="Connections per process, one of them for its heartbeat. Default 8."
    )
    pooler: bool = Field(
        False,
        description="The DSN leads through a transaction-mode pooler: no prepared statements, no LISTEN.",
    )


class RedisTable(SettingsTable):
    """Redis 6.2 or newer, or Valkey, which stores what may be lost."""

    url: SecretStr | None = Field(
        None,
        min_length=1,
        description="URL. Default none: the embedded server is started, unless database.url is set.",
    )
    prefix: str = Field(
        "fairlead",
        pattern=r"\A[A-Za-z0-9_-]{1,64}\z",
        description="First part of every key. Installations that share a server need different ones. Default "
        "fairlead.",
    )


class VaultTable(SettingsTable):
    """The master key that wraps each tenant's data key."""

    master_key: SecretStr | None = Field(
        None,
        min_length=1,
        description="`id:key` or key, in base64. During a rotation several, separated by commas; the first one "
        "encrypts.",
    )
    master_key_file: Path | None = Field(
        None, description="File with the same content, mode 0600. Default home/master.key if it exists."
    )
    kms: str | None = Field(None, description="`module:object` of a KMS hook, instead of a key.")


class RefreshTable(SettingsTable):
    """Durations and limits of token refreshes. You rarely need to change them, except for demos and tests."""

    request_deadline_s: Seconds = Field(
        15.0,
        description="Longest duration of one token request, and of the wait of a replay for the request before "
        "it. Default 15.",
    )
    total_deadline_s: Seconds = Field(
        50.0, description="Longest duration of one refresh with its retries. Default 50."
    )
    lease_s: Seconds = Field(
        60.0,
        description="Time after which another process may take over a refresh that was not sent. Default 60.",
    )
    not_sent_delays_s: tuple[Seconds, ...] = Field(
        (1.0, 3.0),
        description="Delays before retries of a request that was provably not sent. Default 1 and 3.",
    )
    cooldown_s: float = Field(
        30.0, ge=0, description="Least time between two successful refreshes of a connection. Default 30."
    )
    min_remaining_s: Seconds = Field(
        60.0,
        description="Remaining validity with which a token is still served without a refresh. Default 60.",
    )
    wait_s: float = Field(
        15.0, ge=0, description="How long a caller waits for a refresh, even one that was sent. Default 15."
    )
    cache_s: float = Field(
        5.0, ge=0, description="How long a process serves a token from memory without a query. Default 5."
    )
    retry_dead_after_s: Seconds = Field(
        900.0,
        description="Time before a refresh is scheduled again after its job was discarded. Default 900.",
    )
    breaker_failures: int = Field(
        10,
        ge=1,
        le=10_000,
        description="How many connections must fail at the host of a token endpoint, with no complete "
        "response in between, before its breaker opens; never fewer than 2. Default 10.",
    )
    breaker_open_s: Seconds = Field(
        60.0, description="How long the breaker opens first; each further time doubles it. Default 60."
    )
    breaker_open_max_s: Seconds = Field(
        600.0, description="Longest time that the breaker opens. Default 600."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.request_deadline_s <= self.total_deadline_s <= 90.0:
            raise ValueError(
                "request_deadline_s must be at most total_deadline_s, and that at most 90 s, the timeout of a "
                "refresh job"
            )
        if self.lease_s <= self.request_deadline_s:
            raise ValueError(
                "lease_s must be longer than request_deadline_s, or a request in flight could be taken over"
            )
        return self


class WorkerTable(SettingsTable):
    """One worker process."""

    concurrency: int = Field(200, ge=1, le=10_000, description="Jobs that run at once. Default 200.")
    lease_s: Seconds = Field(
        30.0, description="Time without a heartbeat after which a process counts as lost. Default 30."
    )
    poll_s: Seconds = Field(1.0, description="Time between two polls of an idle worker. Default 1.")
    shutdown_grace_s: float = Field(
        60.0, ge=0, description="Time that running jobs have to end after a stop. Default 60."
    )
    max_crashes: int = Field(
        3,
        ge=1,
        le=100,
        description="How often a job may crash its process before it is discarded. Default 3.",
    )
    queues: tuple[str, ...] = Field(
        (), description="Queues to claim from. Default `default` and the queues of your handlers."
    )
    kinds: tuple[str, ...] = Field((), description="Kinds of job to claim. Default all.")
    providers: tuple[str, ...] = Field((), description="Providers to claim jobs of. Default all.")
    memory_limit_mb: int | None = Field(
        None,
        ge=64,
        description="Memory of the process: it warns at 80 % and claims no more at 90 %. Default the limit of "
        "the container.",
    )


class SchedulesTable(SettingsTable):
    """When fairlead's own jobs run: cron expressions of five fields, or `@every 5s`."""

    refresh_scan: str = Field(
        "*/5 * * * *", description="Scan for tokens that are due for a refresh. Default every 5 minutes."
    )
    urgent_scan: str = Field(
        "* * * * *", description="Scan for tokens that are about to expire. Default every minute."
    )
    dead_letters: str = Field("*/15 * * * *", description="Dead-letter processor. Default every 15 minutes.")
    clean_up: str = Field(
        "30 * * * *", description="Deletion of data past its retention. Default at half past each hour."
    )

    @field_validator("*")
    @classmethod
    def _run_times(cls, expression: str) -> str:
        try:
            parse_schedule(expression)
        except InvalidInputError as error:
            # Its message would repeat the value, which may be a secret in the wrong place.
            raise ValueError(f"is not a schedule; hint: {error.hint}") from None
        return expression


class RetentionTable(SettingsTable):
    """How long finished work is stored."""

    completed_s: Seconds = Field(86_400.0, description="Completed jobs. Default 24 h.")
    cancelled_s: Seconds = Field(7 * 86_400.0, description="Cancelled jobs. Default 7 days.")
    discarded_s: Seconds = Field(
        30 * 86_400.0, description="Discarded jobs and closed dead letters. Default 30 days."
    )
    schedule_runs_s: Seconds = Field(30 * 86_400.0, description="Runs of schedules. Default 30 days.")
    dead_letter_bound: int = Field(
        10_000, ge=1, description="Most open dead letters of a queue. Default 10,000."
    )


class DeadLettersTable(SettingsTable):
    """What is done with dead letters automatically."""

    max_replays: int = Field(
        3, ge=0, le=3, description="Automatic replays of a job that failed for a transient reason. Default 3."
    )
    replay_window_s: Seconds = Field(
        3_600.0, description="Time after the first failure within which a job is replayed. Default 1 h."
    )
    cool_down_s: Seconds = Field(300.0, description="Time between a failure and its replay. Default 5 min.")
    redrive_after_s: Seconds | None = Field(
        None,
        description="Save the last replay until this long after a failure, even beyond the window, for long "
        "outages. Default none: all replays happen within the window.",
    )
    abandon_after_s: Seconds = Field(
        7 * 86_400.0, description="Age at which an open dead letter is abandoned. Default 7 days."
    )
    notice_before_s: Seconds = Field(
        86_400.0,
        description="How long before that the last notice to re-authorise is sent. Default 1 day.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.notice_before_s >= self.abandon_after_s:
            raise ValueError("notice_before_s must be shorter than abandon_after_s")
        return self


class ProviderAppTable(SettingsTable):
    """Your app at a provider, and your changes to the provider's profile."""

    client_id: str = Field("", max_length=500, description="Client id of your app.")
    client_secret: SecretStr | None = Field(None, description="Client secret; also client_secret_file.")
    client_secret_file: Path | None = Field(None, description="File that holds the client secret.")
    private_key_file: Path | None = Field(None, description="PEM key that signs assertions.")
    key_id: str | None = Field(None, max_length=200, description="Id of that key (`kid`).")
    hosts: tuple[Host, ...] = Field(
        (),
        max_length=100,
        description="Exact hosts that may receive the secret or a signature of your app, for a profile in "
        "which each connection names its own host (`generic_oauth2`). Default none: such connections need an "
        "app of their own.",
    )
    overlay: dict[str, Any] = Field(default_factory=dict, description="Changes to the profile.")


class NotificationsTable(SettingsTable):
    """Notifications that a connection must be re-authorised by the customer."""

    webhook_url: SecretStr | None = Field(
        None,
        description="URL that receives signed events by POST. It is a secret because such URLs often hold a "
        "key. Default none.",
    )
    webhook_secret: SecretStr | None = Field(
        None, description="Key of the signatures (HMAC-SHA256); required with a URL."
    )
    reauth_link: str | None = Field(
        None,
        description="URL of your page on which a customer reconnects. {tenant}, {provider}, {account} and "
        "{connection} in it are replaced, percent-encoded. Default none.",
    )


class HttpTable(SettingsTable):
    """Outgoing requests. The certificate of a server must come from an authority that the system trusts, or from
    one in the file SSL_CERT_FILE or the folder SSL_CERT_DIR of the environment."""

    allow_private_addresses: bool = Field(
        False,
        description="Allow calls, token requests and webhooks to private addresses, by http, and at any port. "
        "For development. Default false.",
    )
    extra_ports: tuple[Port, ...] = Field(
        (),
        max_length=100,
        description="Ports besides 443 that calls may use at hosts that a profile or a connection names. "
        "Default none.",
    )
    trust_env: bool = Field(
        False,
        description="Use the proxies in HTTPS_PROXY, HTTP_PROXY and NO_PROXY of the environment. Then only the "
        "proxy can check which address a host name resolves to. NO_PROXY takes hosts, domains, addresses and "
        "networks (10.0.0.0/8). Default false.",
    )
    max_header_bytes: int = Field(
        16_384,
        ge=1_024,
        le=1_048_576,
        description="Longest header line of a response, in bytes; a longer one fails its call. Default 16384.",
    )
    max_connections: int = Field(
        500, ge=1, le=50_000, description="Connections of one process for calls, to all hosts. Default 500."
    )
    max_connections_per_host: int = Field(
        300,
        ge=1,
        le=50_000,
        description="Connections of one process for calls to one host, so that a slow host does not take all. "
        "One tenant may use four fifths of them. Default 300.",
    )


class LogTable(SettingsTable):
    """Structured logs on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Default info.")
    format: Literal["auto", "json", "console"] = Field(
        "auto", description="auto: console on a terminal, else json. Default auto."
    )


class Settings(SettingsTable):
    """All settings. `fairlead config show --origin` prints where each value came from."""

    home: Path = Field(
        Path(".fairlead"),
        description="Folder of the embedded servers, the journal and the master key, on a disk that outlives "
        "the process. Default .fairlead.",
    )
    app_version: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="Version of your application, such as a tag or a commit. `fairlead top` shows it for each "
        "process. Default none.",
    )
    database: DatabaseTable = DatabaseTable()
    redis: RedisTable = RedisTable()
    vault: VaultTable = VaultTable()
    refresh: RefreshTable = RefreshTable()
    worker: WorkerTable = WorkerTable()
    schedules: SchedulesTable = SchedulesTable()
    retention: RetentionTable = RetentionTable()
    dead_letters: DeadLettersTable = DeadLettersTable()
    notifications: NotificationsTable = NotificationsTable()
    http: HttpTable = HttpTable()
    log: LogTable = LogTable()
    providers_dir: Path | None = Field(None, description="Folder of your own profiles. Default none.")
    providers: dict[str, ProviderAppTable] = Field(default_factory=dict, description="Your apps by provider.")

    @field_validator("app_version")
    @classmethod
    def _refuse_unprintable(cls, version: str | None) -> str | None:
        if version is not None and not (version.isprintable() and version.strip()):
            raise ValueError("may hold printable characters only, and not only spaces")
        return version
