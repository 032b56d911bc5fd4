"""What a user may set, with its meaning and default. Values only; config.py reads them.

Unknown keys are refused. A secret is a SecretStr here and is handed on as a ``Secret``; each may also
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


class Table(BaseModel):
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


class DatabaseTable(Table):
    """PostgreSQL 15 or newer: the truth."""

    url: SecretStr | None = Field(
        None, min_length=1, description="DSN. Default none: the embedded one is started."
    )
    schema_name: str | None = Field(
        None, min_length=1, max_length=63, description="Schema of fairlead's tables. Default fairlead."
    )
    pool_size: int = Field(
        8, ge=2, le=200, description="Connections of one process, one of them for its heartbeat. Default 8."
    )
    pooler: bool = Field(
        False,
        description="The DSN leads through a transaction-mode pooler: no prepared statements, no LISTEN.",
    )


class RedisTable(Table):
    """Redis 6.2 or newer, or Valkey: what may be lost."""

    url: SecretStr | None = Field(
        None, min_length=1, description="URL. Default none: the embedded one is started."
    )
    prefix: str = Field(
        "fairlead",
        pattern=r"\A[A-Za-z0-9_-]{1,64}\z",
        description="Begins every key: installations that share a server need one each. Default fairlead.",
    )


class VaultTable(Table):
    """The master key that wraps each tenant's data key."""

    master_key: SecretStr | None = Field(
        None,
        min_length=1,
        description="`id:key` or key, base64; several by comma while rotating, the first seals.",
    )
    master_key_file: Path | None = Field(
        None, description="File that holds the same, mode 0600. Default home/master.key if it is there."
    )
    kms: str | None = Field(None, description="`module:object` of a KMS hook, in place of a key of your own.")


class RefreshTable(Table):
    """The coordinator's numbers. You rarely need to change them, except in demonstrations and tests."""

    request_deadline_s: Seconds = Field(
        15.0, description="One token request, and how long a replay waits for the one before. Default 15."
    )
    total_deadline_s: Seconds = Field(50.0, description="All tries of one refresh. Default 50.")
    lease_s: Seconds = Field(60.0, description="Nobody takes over an unsent refresh before. Default 60.")
    not_sent_delays_s: tuple[Seconds, ...] = Field(
        (1.0, 3.0), description="Waits before trying again what provably never left. Default 1 and 3."
    )
    cooldown_s: float = Field(30.0, ge=0, description="Since the last successful refresh. Default 30.")
    min_remaining_s: Seconds = Field(
        60.0, description="Serves a caller that presented no token without a refresh. Default 60."
    )
    wait_s: float = Field(
        15.0, ge=0, description="How long a caller waits for a refresh, also once it was sent. Default 15."
    )
    cache_s: float = Field(
        5.0, ge=0, description="How long a process serves a token from memory without looking. Default 5."
    )
    retry_dead_after_s: Seconds = Field(
        900.0, description="A refresh that died is not scheduled again before this. Default 900."
    )
    breaker_failures: int = Field(
        10,
        ge=1,
        le=10_000,
        description="How many connections must fail at the host of a token endpoint, with no complete "
        "answer in between, before its breaker opens; never fewer than 2. Default 10.",
    )
    breaker_open_s: Seconds = Field(
        60.0, description="First opening of the breaker; each further one doubles it. Default 60."
    )
    breaker_open_max_s: Seconds = Field(600.0, description="Longest opening of the breaker. Default 600.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.request_deadline_s <= self.total_deadline_s <= 90.0:
            raise ValueError("request_deadline_s <= total_deadline_s <= 90 s, the time of a refresh job")
        if self.lease_s <= self.request_deadline_s:
            raise ValueError("lease_s must be longer than request_deadline_s: nobody takes over a request")
        return self


class WorkerTable(Table):
    """One worker process."""

    concurrency: int = Field(200, ge=1, le=10_000, description="Jobs at once. Default 200.")
    lease_s: Seconds = Field(30.0, description="A process unheard of for this long is lost. Default 30.")
    poll_s: Seconds = Field(1.0, description="How often an idle worker looks for work. Default 1.")
    shutdown_grace_s: float = Field(60.0, ge=0, description="Time to end running jobs on stop. Default 60.")
    max_crashes: int = Field(3, ge=1, le=100, description="Then a job is dead. Default 3.")
    queues: tuple[str, ...] = Field((), description="Default `default` and the queues of your handlers.")
    kinds: tuple[str, ...] = Field((), description="Kinds of job to take. Default all.")
    providers: tuple[str, ...] = Field((), description="Providers to take jobs of. Default all.")
    memory_limit_mb: int | None = Field(
        None, ge=64, description="Warn at 80 %, stop claiming at 90 %. Default the container's limit."
    )


class SchedulesTable(Table):
    """Cron expressions of five fields, or `@every 5s`."""

    refresh_scan: str = Field("*/5 * * * *", description="All that is due. Default every 5 minutes.")
    urgent_scan: str = Field("* * * * *", description="What is inside its lead. Default each minute.")
    dead_letters: str = Field(
        "*/15 * * * *", description="The dead-letter processor. Default each quarter hour."
    )
    clean_up: str = Field("30 * * * *", description="Retention. Default at half past each hour.")

    @field_validator("*")
    @classmethod
    def _run_times(cls, expression: str) -> str:
        try:
            parse_schedule(expression)
        except (
            InvalidInputError
        ) as error:  # its words repeat the value, which may be a secret in the wrong place
            raise ValueError(f"is no schedule; hint: {error.hint}") from None
        return expression


class RetentionTable(Table):
    """How long ended work is retained."""

    completed_s: Seconds = Field(86_400.0, description="Completed jobs. Default 24 h.")
    cancelled_s: Seconds = Field(7 * 86_400.0, description="Cancelled jobs. Default 7 days.")
    discarded_s: Seconds = Field(
        30 * 86_400.0, description="Dead jobs and closed dead letters. Default 30 days."
    )
    schedule_runs_s: Seconds = Field(30 * 86_400.0, description="The record of runs. Default 30 days.")
    dead_letter_bound: int = Field(10_000, ge=1, description="Open dead letters of a queue. Default 10,000.")


class DeadLettersTable(Table):
    """What becomes of dead letters by themselves."""

    max_replays: int = Field(
        3, ge=0, le=3, description="Automatic replays of one that died of something passing. Default 3."
    )
    replay_window_s: Seconds = Field(3_600.0, description="Only so soon after it died first. Default 1 h.")
    cool_down_s: Seconds = Field(300.0, description="Between a death and its replay. Default 5 min.")
    redrive_after_s: Seconds | None = Field(
        None,
        description="Keep the last replay for so long after a death, beyond the window: for long outages. "
        "Default none: all replays are made within the window.",
    )
    abandon_after_s: Seconds = Field(
        7 * 86_400.0, description="Then an open one is given up. Default 7 days."
    )
    notice_before_s: Seconds = Field(
        86_400.0,
        description="Between the last notice to a customer who must consent and that end. Default 1 day.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.notice_before_s >= self.abandon_after_s:
            raise ValueError("notice_before_s must be shorter than abandon_after_s")
        return self


class ProviderAppTable(Table):
    """Your app at a provider, and where its profile is changed for you."""

    client_id: str = Field("", max_length=500, description="Client id of your app.")
    client_secret: SecretStr | None = Field(None, description="Client secret; also client_secret_file.")
    client_secret_file: Path | None = Field(None, description="File that holds the client secret.")
    private_key_file: Path | None = Field(None, description="PEM key that signs assertions.")
    key_id: str | None = Field(None, max_length=200, description="Id of that key (`kid`).")
    hosts: tuple[Host, ...] = Field(
        (),
        max_length=100,
        description="Exact hosts that may have the secret or a signature of your app, where the profile "
        "leaves the whole host to whoever connects (`generic_oauth2`). Default none: such connections bring "
        "an app of their own.",
    )
    overlay: dict[str, Any] = Field(default_factory=dict, description="Changes laid over the profile.")


class NotificationsTable(Table):
    """Who is told that a connection needs its customer."""

    webhook_url: SecretStr | None = Field(
        None, description="POST target of signed events; secret, as receivers put keys into it. Default none."
    )
    webhook_secret: SecretStr | None = Field(
        None, description="Signs them (HMAC-SHA256); required with a URL."
    )
    reauth_link: str | None = Field(
        None,
        description="Page of yours where a customer reconnects; {tenant}, {provider}, {account} and "
        "{connection} are filled in, percent-encoded. Default none.",
    )


class HttpTable(Table):
    """Outgoing requests. Certificates have to be from an authority that the system trusts, or from one in the
    file SSL_CERT_FILE or the folder SSL_CERT_DIR of the environment."""

    allow_private_addresses: bool = Field(
        False,
        description="Calls, token endpoints and webhooks may go to private addresses, and to any host by "
        "http and at any port: for development. Default false.",
    )
    extra_ports: tuple[Port, ...] = Field(
        (),
        max_length=100,
        description="Ports besides 443 at which calls may go to hosts that a profile or a connection names. "
        "Default none.",
    )
    trust_env: bool = Field(
        False,
        description="Go through the proxies that HTTPS_PROXY, HTTP_PROXY and NO_PROXY of the environment "
        "name; behind one only it can check what a name leads to. NO_PROXY takes hosts, domains, addresses "
        "and networks (10.0.0.0/8). Default false.",
    )
    max_header_bytes: int = Field(
        16_384,
        ge=1_024,
        le=1_048_576,
        description="Bytes of one header line of a response; a longer one fails its call. Default 16384.",
    )
    max_connections: int = Field(
        500, ge=1, le=50_000, description="Connections of a process for calls, to all hosts. Default 500."
    )
    max_connections_per_host: int = Field(
        300,
        ge=1,
        le=50_000,
        description="The same to one host, so that a slow one does not take all: as many calls to it may be "
        "in flight from one process, of one tenant four fifths. Default 300.",
    )


class LogTable(Table):
    """Structured logs on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Default info.")
    format: Literal["auto", "json", "console"] = Field(
        "auto", description="auto: console on a terminal, else json. Default auto."
    )


class Settings(Table):
    """All settings. `fairlead config show --origin` tells where each came from."""

    home: Path = Field(
        Path(".fairlead"),
        description="Embedded servers, journal, key: on a disk that outlives the process. Default .fairlead.",
    )
    app_version: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="Version of your application (a tag, a commit), which `fairlead top` shows beside each "
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
