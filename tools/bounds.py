"""Writes docs/reference/bounds.md: each bound, its value, and what happens when it is reached.

``python -m tools.bounds > docs/reference/bounds.md``. Each row names the test that fills the bound; a test
compares the page with the code.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from fairlead._checked_file import SETTINGS_BYTES
from fairlead.adapters.embedded.server_process import START_TIMEOUT_S
from fairlead.adapters.journal.journal import JournalSettings
from fairlead.adapters.postgres.connection_setup import DatabaseSettings
from fairlead.adapters.vault.master import KMS_S
from fairlead.app.job_requests import MOST_BYTES, MOST_JOBS
from fairlead.app.sync import AT_EXIT_S
from fairlead.assembly.runtime import SESSION_WITHIN_S
from fairlead.assembly.settings import HttpTable, RetentionTable, WorkerTable
from fairlead.engine.base.timing import LEAVE_S
from fairlead.engine.calls.pages import MAX_PAGES
from fairlead.engine.calls.request import MAX_BODY_BYTES
from fairlead.engine.jobs.stored_results import MAX_RESULT_BYTES
from fairlead.engine.tokens.consent import DEADLINE_S as CODE_S
from fairlead.engine.tokens.consent import STORE_FOR_S
from fairlead.engine.tokens.deps import RefreshSettings
from fairlead.engine.tokens.revocation import DEADLINE_S
from fairlead.policy.jobs.job import MAX_TAGS, MAX_UNIQUE_KEY_BYTES, MOST_WAITS
from fairlead.policy.jobs.payload import MAX_ARGS_BYTES, MAX_ARGS_DEPTH
from fairlead.policy.limits.limit import MAX_BUCKETS, MAX_SLOTS, PoolLimit
from fairlead.policy.text.names import MAX_TENANT_BYTES
from fairlead.policy.text.safe import MAX_SAFE_BYTES
from fairlead.policy.tokens.parse import LARGEST_BODY, LARGEST_TOKEN


@dataclass(frozen=True, slots=True)
class Bound:
    """One row.

    Attributes:
        holder: What has this much each, such as a tenant or a queue.
        proof: The test that fills the bound, below ``tests/``.
    """

    subject: str
    holder: str
    most: str
    behaviour: str
    proof: str


def _size(count: int) -> str:
    return (
        f"{count >> 20} MiB"
        if count >= 1 << 20
        else f"{count >> 10} KiB"
        if count >= 1 << 10
        else f"{count} B"
    )


BOUNDS = (
    Bound(
        "jobs that run", "tenant, tier or group", "`fairlead tenants caps set`; default none",
        "the others' jobs run; its own wait, and `fairlead jobs explain` says so",
        "contract/test_caps.py::test_no_more_than_the_cap_and_others_run",
    ),
    Bound(
        "jobs that run", "process", f"`worker.concurrency`, {WorkerTable.model_fields['concurrency'].default}",
        "nothing more is claimed",
        "e2e/test_cli_run.py::test_sigterm_lets_jobs_end_and_exits_with_0",
    ),
    Bound(
        "jobs stored by one call", "call", f"{MOST_JOBS:,} jobs, {_size(MOST_BYTES)} of args",
        "`invalid_input`, nothing is stored",
        "unit/app/test_functions.py::test_many_are_stored_in_order_or_not_at_all",
    ),
    Bound(
        "args of a job", "job", f"{_size(MAX_ARGS_BYTES)}, {MAX_ARGS_DEPTH} levels",
        "`invalid_input`, nothing is stored",
        "unit/policy/test_payload.py::test_v7_what_cannot_be_stored_is_refused_with_its_place",
    ),
    Bound(
        "names of a job", "job",
        f"{MAX_TENANT_BYTES} B of a tenant's id, {MAX_UNIQUE_KEY_BYTES} B of a unique key, {MAX_TAGS} tags",
        "`invalid_input`, nothing is stored",
        "unit/policy/test_names.py::test_v8",
    ),
    Bound(
        "result of a job", "job", _size(MAX_RESULT_BYTES), "its beginning is kept, and that it was cut",
        "unit/policy/test_safe.py::test_v7_what_is_too_large_or_too_deep_is_cut_and_says_so",
    ),
    Bound(
        "text of an error", "run", _size(MAX_SAFE_BYTES), "its beginning is kept",
        "unit/policy/test_safe.py::test_ten_megabytes_of_error_are_cut",
    ),
    Bound(
        "waits of a job for a vendor's limit", "job", f"{MOST_WAITS}",
        "the next one is a failure, retried as such",
        "unit/policy/test_job.py::test_waits_for_a_vendors_limit_grow_and_end",
    ),
    Bound(
        "dead letters that are open", "queue",
        f"`retention.dead_letter_bound`, {RetentionTable.model_fields['dead_letter_bound'].default:,}",
        "new jobs of those kinds that have at least their share of them are refused, and where most of those "
        "are one tenant's, only that tenant's, up to twice the bound; other kinds and queues go on",
        "security/test_S36_bounds.py::test_full_dead_letters_stop_who_filled_them_in_his_kind_and_queue",
    ),
    Bound(
        "calls in flight", "connection", f"the profile's or the connection's limit, at most {MAX_SLOTS:,}",
        "the next one waits in line, first come first served",
        "contract/test_gate_slots.py::test_a_tenant_at_its_quota_does_not_hold_up_the_others",
    ),
    Bound(
        "calls that wait in line", "connection",
        f"{PoolLimit.__dataclass_fields__['max_waiters'].default:,}"
        ", and one of each other tenant up to twice as many",
        "`limit_exceeded` with the time to come back",
        "contract/test_gate_slots.py::test_too_many_do_not_wait",
    ),
    Bound(
        "rates of a connection", "connection", f"{MAX_BUCKETS} buckets, each of its tenant alone",
        "a call waits for its reservation, or you get `limit_exceeded` with the time to retry",
        "contract/test_gate_buckets.py::test_tenants_do_not_share",
    ),
    Bound(
        "connections to vendors", "process",
        f"`http.max_connections`, {HttpTable.model_fields['max_connections'].default}; to one host "
        f"{HttpTable.model_fields['max_connections_per_host'].default}"
        "; of one tenant at most four fifths of what the others leave",
        "`not_sent`, nothing that was taken is kept",
        "unit/engine/test_pipeline_unsent.py::test_a_full_pool_of_ours_is_no_fault_and_gives_back_what_was_taken",
    ),
    Bound(
        "body of a response", "call", f"`max_body_bytes`, {_size(MAX_BODY_BYTES)} decoded",
        "the call fails, the connection is closed",
        "contract/test_transport_bodies.py::test_the_bound_is_exact",
    ),
    Bound(
        "response of a token endpoint", "refresh", f"{_size(LARGEST_BODY)}; {_size(LARGEST_TOKEN)} of a token",
        "the outcome is unknown, and the response is kept sealed",
        "unit/policy/test_token_parse.py::test_unreadable_answers_are_refused_without_raising",
    ),
    Bound(
        "pages of a list", "list", f"{MAX_PAGES:,}", "`invalid_input`",
        "unit/engine/test_pages.py::test_a_circle_is_told",
    ),
    Bound(
        "settings file", "file", _size(SETTINGS_BYTES), "`invalid_config`",
        "security/test_S36_bounds.py::test_a_settings_file_that_is_too_large_is_refused",
    ),
)  # fmt: skip

UNBOUND = (
    ("jobs that wait", "a claim takes turns by tenant, so a backlog delays its own tenant"),
    (
        "bytes stored (args, results, errors)",
        "those of each job are bounded, and `retention` ends them; a full disk stops all tenants",
    ),
    (
        "connections stored",
        "each is a row and a credential; only your code and your operators can add one",
    ),
)
"""What a tenant has no cap of, and what protects others instead."""

_DATABASE = DatabaseSettings("")
_REFRESH = RefreshSettings()
_STEPS = f"{_REFRESH.request_deadline_s:g} s a request, {_REFRESH.total_deadline_s:g} s for all tries"

WAITS = (
    ("a refresh", "the token endpoint", _STEPS, "sent: the outcome is unknown; not sent: `not_sent`"),
    (
        "a caller of `fl.token`", "the refresh", f"{_REFRESH.wait_s:g} s, also after the request was sent",
        "`refresh_in_progress`; the refresh goes on",
    ),
    (
        "a job `token.refresh`", "the refresh", f"{_REFRESH.lease_s:g} s, and no other process at all",
        "it snoozes, which counts as no attempt",
    ),
    (
        "each statement", "PostgreSQL",
        f"{_DATABASE.acquire_timeout_s:g} s for a connection, "
        f"{_DATABASE.statement_timeout_s * 5 / 6:g} s for a lock of another transaction, "
        f"{_DATABASE.statement_timeout_s:g} s at the server, "
        f"{_DATABASE.command_timeout_s:g} s for the response",
        "`dependency_unavailable`; a repetition recognises what was committed",
    ),
    (
        "storing a token response", "a locked row, or a database that is unavailable",
        f"as long as the process lives, retried every {_REFRESH.settle_retry_s:g} s",
        "nothing else waits for it: the response is in the journal, and callers have a bound of their own",
    ),
    ("a refresh", "a KMS hook", f"{KMS_S:g} s", "`dependency_unavailable`; the next caller tries again"),
    (
        "a refresh", "the journal's disk", f"{JournalSettings().sync_timeout_s:g} s",
        "before the send: refused; after it: the response is stored all the same",
    ),
    (
        "a consent", "the token endpoint, then the database", f"{CODE_S:g} s, then {STORE_FOR_S:g} s",
        "an error; a caller that goes away meanwhile changes nothing",
    ),
    (
        "a revocation", "the provider", f"{DEADLINE_S:g} s",
        "`no response`; it is revoked here all the same",
    ),
    (
        "the end of a process", "refreshes in flight",
        f"{_REFRESH.total_deadline_s:g} s; at the exit of a program with `fl.sync` {AT_EXIT_S:g} s. One "
        f"that was sent gets {_REFRESH.request_deadline_s + LEAVE_S:g} s more",
        "what is cut off is taken over, or settled from the journal",
    ),
    (
        "the first call of `fl.sync`", "imports of yours",
        "no bound of ours: they run on the caller's thread and under no lock", "as any import",
    ),
    (
        "a handler", "your code", "the job's timeout",
        "cancelled; a plain function runs on in its thread, and those are bounded",
    ),
    (
        "`enqueue(transaction=...)`", "your transaction", "no bound of ours: the connection is yours",
        "the time-outs of your connection count",
    ),
    ("the start of a process", "its session", f"{SESSION_WITHIN_S:g} s", "`dependency_unavailable`"),
    ("the start of a process", "the embedded servers", f"{START_TIMEOUT_S:g} s each", "the log is named"),
)  # fmt: skip
"""Each wait of token refreshes for something outside: what waits, for what, how long, and what follows."""

_HEAD = """\
# Bounds

<!-- Written by `python -m tools.bounds`. Do not edit. -->

You can see here how much one tenant, queue, connection or process may use, and what happens then. Each bound
applies to each subject in the column *of* separately. Each row names the test that fills the bound. Where a
tenant has no cap, you find what protects the others [below](#no-cap-of-a-tenants-own).

| what | of | at most | what happens there | shown by |
| --- | --- | --- | --- | --- |
"""

_UNBOUND_HEAD = """
## No cap of a tenant's own

Nothing refuses a tenant more of these, however many there are: bound them where you take them in.

| what | what there is instead |
| --- | --- |
"""

_WAITS_HEAD = """
## Waits

What fairlead waits for that is not its own code, and how long.

| what waits | for | at most | then |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the text of docs/reference/bounds.md."""
    rows = "".join(map(_row, BOUNDS)) + _UNBOUND_HEAD + "".join(map(_plain_row, UNBOUND))
    return _HEAD + rows + _WAITS_HEAD + "".join(map(_plain_row, WAITS))


def _row(bound: Bound) -> str:
    file, _, name = bound.proof.partition("::")
    shown = f"[`{name}`](../../tests/{file})"
    return f"| {bound.subject} | {bound.holder} | {bound.most} | {bound.behaviour} | {shown} |\n"


def _plain_row(row: tuple[str, ...]) -> str:
    return f"| {' | '.join(row)} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
