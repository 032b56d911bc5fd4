"""The promises of docs/reliability.md: what each says, its figures and what they count, and its limit.

Over 400 lines because one table is one table.
"""

from __future__ import annotations

from tools.promise import LOSSES, Most, Promise, Zero

REDIS = ("E20", "E21", "E22", "E23")
LOST_REDIS = ("E21", "E22", "E23", "E24", "E25", "E26")
OVER = ("over_limit_at_upstream",)
LOST_SLOTS = ("E21", "E22", "E24", "E26")
OUTAGES = (*REDIS, "E24", "E25", "E26")
RATES = (*OUTAGES, "E41")
OF_A_REFRESH = "intent, sent mark, save"
"""The part of E12 about tokens; the others are about jobs."""
BACKLOG = "a standing backlog"

PROMISES = (
    Promise(
        "P1",
        "A job is not lost once its enqueue has returned.",
        (
            Zero(
                "accepted jobs lost when workers are killed or drained",
                ("E01", "E05"),
                ("lost",),
                "deaths or drains",
                LOSSES,
                beside="jobs",
            ),
            Zero(
                "accepted jobs lost when PostgreSQL backends are terminated",
                ("E11",),
                ("lost",),
                "backends at work",
                LOSSES,
                beside="jobs",
            ),
            Zero(
                "accepted jobs lost when PostgreSQL crashes, fails over or has a full disk",
                ("E13", "E15", "E17"),
                ("lost",),
                "faults",
                LOSSES,
                beside="jobs",
            ),
            Zero(
                "accepted jobs lost in a soak",
                ("E52",),
                ("lost",),
                "faults of ten kinds",
                LOSSES,
                beside="jobs",
            ),
            Most(
                "lost at ten fail-overs to an asynchronous stand-by that lacks the last 0.5 s",
                ("E15",),
                "lost_with_an_asynchronous_standby",
                "jobs",
            ),
            Zero(
                "commits of unknown outcome that were reported wrongly",
                ("E12",),
                ("false_success",),
                "commits",
                without=OF_A_REFRESH,
            ),
            Zero(
                "impossible states after a kill at a named point of the code",
                ("E02",),
                ("illegal_states",),
                "kills",
                part="jobs",
            ),
        ),
        "PostgreSQL runs with synchronous_commit on, and its disk survives. An asynchronous stand-by lacks"
        " the last moments: jobs that were accepted in them are lost if it is promoted.",
    ),
    Promise(
        "P2",
        "The result, retry or dead letter of a superseded lease is refused.",
        (
            Zero(
                "late writes accepted",
                ("E03", "E04"),
                ("stale_accepted",),
                "late writes",
                ("late_writes_refused",),
            ),
        ),
        "What the handler did elsewhere is not undone.",
    ),
    Promise(
        "P3",
        "A job may run more than once; there are at most as many extra runs as jobs in flight on workers that"
        " were killed, frozen, or cut off from PostgreSQL for longer than a lease.",
        (
            Most(
                "jobs in flight at kills that ran again",
                ("E01",),
                "extra_runs",
                "jobs in flight",
                of=("in_flight_at_kills",),
                added=True,
            ),
            Most(
                "extra runs in a soak with all of these faults",
                ("E52",),
                "extra_runs",
                "runs",
                of=("runs",),
                added=True,
            ),
            Zero(
                "duplicates after commits of unknown outcome",
                ("E12",),
                ("duplicates",),
                "commits",
                without=OF_A_REFRESH,
            ),
        ),
        "Jobs run at least once, so your handlers must be idempotent.",
    ),
    Promise(
        "P4",
        "After SIGKILL, 99 % of the work continues within lease + sweep + 1 s.",
        (
            Most(
                "time until the jobs of a killed process run again, where its death is proven, p99",
                ("E01",),
                "recovery_s",
                "jobs in flight",
                " s",
                "p99",
                of=("in_flight_at_kills",),
                part="death is proven",
            ),
            Most(
                "the last job",
                ("E01",),
                "recovery_s",
                "jobs in flight",
                " s",
                of=("in_flight_at_kills",),
                part="death is proven",
            ),
            Most(
                "the same where the death is presumed, at a lease of 5 s, p99",
                ("E01",),
                "recovery_s",
                "jobs in flight",
                " s",
                "p99",
                of=("in_flight_at_kills",),
                part="death is presumed",
            ),
            Most(
                "the last job",
                ("E01",),
                "recovery_s",
                "jobs in flight",
                " s",
                of=("in_flight_at_kills",),
                part="death is presumed",
            ),
            Most(
                "bound of a lease of 5 s, a sweep of a sixth of it, and 1 s",
                ("E01",),
                "recovery_bound_s",
                "kills",
                " s",
                of=("kills",),
                part="death is presumed",
            ),
            Most(
                "the last job, at the default lease of 30 s",
                ("E01",),
                "recovery_s",
                "jobs in flight",
                " s",
                of=("in_flight_at_kills",),
                part="death is presumed, at the default lease",
            ),
            Most(
                "bound of this lease, a sweep of 5 s, and 1 s",
                ("E01",),
                "recovery_bound_s",
                "kills",
                " s",
                of=("kills",),
                part="death is presumed, at the default lease",
            ),
        ),
        "A death on the same host is proven at once; otherwise the lease (30 s by default) has to expire."
        " Jobs that ran at a crash are retried one at a time in each process (P5), so long ones wait for each"
        " other.",
    ),
    Promise(
        "P5",
        "A job that kills its process does so at most three times; the jobs beside it lose nothing.",
        (
            Most("processes killed by one job", ("E07",), "crashes_of_a_bomb", "such jobs"),
            Zero(
                "jobs beside it that lost an attempt or more",
                ("E07",),
                ("neighbours_lost", "attempts_lost"),
                "deaths",
                ("deaths",),
                among=("suspects",),
            ),
        ),
        "The jobs beside it run again, each one alone, so they are delayed.",
    ),
    Promise(
        "P6",
        "No refresh token is lost, except in one window, which is measured.",
        (
            Zero(
                "lost outside the window",
                ("E42", "E43", "E44", "E45"),
                ("burnt", "burnt_outside_window", "burnt_where_it_can_be_had_again"),
                "requests or faults",
                ("provider_posts", "n"),
            ),
            Zero(
                "impossible states after a kill during a refresh",
                ("E02",),
                ("illegal_states",),
                "kills",
                part="refreshes",
            ),
            Zero(
                "lost, sent twice or reported wrongly after commits of unknown outcome",
                ("E12",),
                ("burnt", "second_sends", "false_success"),
                "commits",
                part=OF_A_REFRESH,
            ),
            Most(
                "lost inside the window, where the provider repeats no response, and this one was cut off, or"
                " its process was killed before it confirmed the fsync",
                ("E43",),
                "burnt_where_nobody_can_help",
                "such responses",
                of=("lost_without_grace",),
                added=True,
            ),
            Most("window, p50", ("E43",), "window_ms", "refreshes", " ms", "p50", ("window_n",)),
            Most("window, p99", ("E43",), "window_ms", "refreshes", " ms", "p99", ("window_n",)),
            Most(
                "window in an idle process, p99",
                ("E43",),
                "window_idle_ms",
                "refreshes",
                " ms",
                "p99",
                ("window_idle_n",),
            ),
        ),
        "The window: between the provider's commit and fairlead's fsync the process dies or the response is"
        " lost, and the provider has no grace period. The disk with the journal survives.",
    ),
    Promise(
        "P7",
        "In any window T, the provider counts at most burst + rate × T requests.",
        (
            Most("requests above it in the worst window", RATES, "rate_over", "calls", of=("calls", "n")),
            Most(
                "requests above it in total, by one process that alone cannot reach Redis for six times 10 s",
                ("E23",),
                "rate_over_with_one_share",
                "calls",
            ),
            Most(
                "requests beyond what an outage may add, in seconds of the rate",
                OUTAGES,
                "rate_beyond_s",
                "calls",
            ),
            Most(
                "longest transit time, in which the rate may let as many more requests arrive",
                RATES,
                "lag_s",
                "calls",
                " s",
                of=("calls", "n"),
            ),
        ),
        "Measured on arrival. If a request is delayed in transit by t more than the next one, up to rate × t"
        " more can arrive in a window. While some processes count in Redis and others use their share, the"
        " shares come on top: for 0.5 s at each change, and for the whole time in which one process alone"
        " cannot reach Redis.",
    ),
    Promise(
        "P8",
        "The provider counts at most as many calls in flight as there are slots.",
        (
            Zero(
                "calls over the limit",
                (*REDIS, "E25", "E26", "E27"),
                OVER,
                "faults or calls",
                (*LOSSES, "n"),
                "calls",
            ),
            Zero(
                "over the limit plus one share, where one process alone cannot reach Redis",
                ("E23",),
                ("over_with_one_share",),
                "cuts",
                ("outages",),
                "calls",
            ),
            Zero(
                "slots given twice or leaked",
                ("E27",),
                ("over_admissions", "leaked"),
                "kills",
                (*LOSSES, "n"),
            ),
        ),
        "A process that alone cannot reach Redis adds its share for as long as that lasts. The API may still"
        " work on a call after its process was killed, was frozen for longer than its lease, or gave up at its"
        " deadline. After a fail-over that loses the last grants, old and new slots overlap for one lease.",
    ),
    Promise(
        "P9",
        "Beside a tenant with 100 times the load, others wait at most twice their p99 alone plus one job.",
        (
            Most("p99 alone", ("E46",), "alone_ms", "jobs", " ms", "p99", ("alone_n",), part=BACKLOG),
            Most(
                "p99 beside a tenant with a standing backlog",
                ("E46",),
                "loud_ms",
                "jobs",
                " ms",
                "p99",
                ("loud_n",),
                part=BACKLOG,
            ),
            Most(
                "bound, twice the p99 alone and one job of 150 ms",
                ("E46",),
                "bounds_ms",
                "jobs",
                " ms",
                "loud",
                ("alone_n",),
                part=BACKLOG,
            ),
            Most(
                "p99 beside a tenant with jobs of 500 ms",
                ("E46",),
                "slow_ms",
                "jobs",
                " ms",
                "p99",
                ("slow_n", "n"),
            ),
            Most(
                "the same with a cap on that tenant",
                ("E46",),
                "slow_capped_ms",
                "jobs",
                " ms",
                "p99",
                ("slow_capped_n", "n"),
            ),
        ),
        "Measured in one process that runs 10 jobs at once. Fairness counts jobs, not their length: a tenant"
        " with slow jobs needs a cap. These were measured beside quiet tenants that use a fifth of what the"
        " process can do.",
    ),
    Promise(
        "P10",
        "Retries add at most 20 %; one probe at a time checks whether an API has recovered; 95 % of the calls"
        " succeed again within 60 s of its recovery.",
        (
            Most(
                "requests per call, the worse of an API that queues and one that sheds load",
                ("E38",),
                "amplification",
                "calls sent",
                of=("sent",),
            ),
            Most(
                "95 % of the calls succeed again after",
                ("E38",),
                "recovery_s",
                "APIs",
                " s",
                of=("triggers",),
            ),
            Most(
                "the same after an outage of 5 s, as the breaker waits 60 s before its first probe",
                ("E38",),
                "again_s",
                "APIs",
                " s",
                of=("triggers",),
                part="gone briefly",
            ),
            Most(
                "the same after an outage of 90 s, which outlasts that probe",
                ("E38",),
                "again_s",
                "APIs",
                " s",
                of=("triggers",),
                part="gone for long",
            ),
            Zero("probes that ran beside another", ("E40",), ("two_probes",), "probes"),
        ),
        "Measured at a steady 80 % of the API's capacity, of which nine tenths are lost for 30 s. Where the"
        " API queues, the breaker refuses most calls meanwhile. It probes after 60 s, so a shorter outage"
        " costs a minute and 3 s as well. Each further probe waits twice as long, up to 10 min, so calls may"
        " succeed that much later after a long outage.",
    ),
    Promise(
        "P11",
        "No response costs more than 32 MiB of memory, 50 ms of the event loop, or the call's deadline.",
        (
            Zero("processes killed by a response", ("E33",), ("killed",), "responses"),
            Most("memory", ("E33",), "peak_mib", "responses", " MiB"),
            Most("event loop blocked for", ("E33",), "stall_ms", "responses", " ms"),
            *(
                Most(words.format(mib), ("E33",), counter, "responses", unit, part=f"read as JSON, {mib} MiB")
                for mib in (1, 15)
                for words, counter, unit in (
                    ("memory once the caller reads {} MiB as JSON", "read_mib", " MiB"),
                    ("event loop blocked meanwhile for", "read_stall_ms", " ms"),
                )
            ),
            Most(
                "event loop blocked by slow DNS",
                ("E35",),
                "max_stall_ms",
                "calls",
                " ms",
            ),
            Most("longest call with a deadline of 10 s", ("E31",), "took_s", "calls", " s"),
        ),
        "A body has 16 MiB at most by default and is held until you read it. json() of 1 MiB keeps these"
        " bounds; json() of 15 MiB may take 420 MiB and 1.4 s, so set max_body_bytes where responses are"
        " small. A call may end up to 0.5 s after its deadline.",
    ),
    Promise(
        "P12",
        "No secret is found outside the vault.",
        (
            Zero(
                "planted secrets found",
                ("S13",),
                ("canary_found",),
                "runs",
                among=("canaries", "places", "bytes"),
            ),
        ),
        "Searched in logs, events, errors, dead letters, the database and on command lines. Metrics, traces,"
        " dashboard and mail do not exist yet.",
        "`make security`",
    ),
    Promise(
        "P13",
        "No tenant reads or writes what belongs to another.",
        (
            Zero(
                "cross-tenant reads and writes",
                ("S27",),
                ("cross_tenant_reads", "cross_tenant_writes"),
                "ways to try",
            ),
            Zero(
                "rows of other tenants over shared connections",
                ("S27",),
                ("foreign_rows", "settings_left"),
                "uses",
            ),
            Zero("results that belong to another request", ("E29",), ("wrong_answers",), "responses"),
        ),
        "Tested for every command, method and statement that takes a tenant. Row-level security is the second"
        " guard of what sets up, reads and operates; enqueue, claim and refresh rely on their SQL alone.",
        "`make security`",
    ),
    Promise(
        "P14",
        "Without PostgreSQL, workers stay up and keep finished results for 60 s; then work continues in 5 s.",
        (
            Zero(
                "finished results lost",
                ("E14",),
                ("finished_results_lost",),
                "outages",
                LOSSES,
                among=("finished_meanwhile",),
            ),
            Most(
                "jobs that take one and a half leases, ran again and were not lost",
                ("E14",),
                "long_jobs_run_again",
                "such jobs",
                of=("long_jobs",),
            ),
            Most(
                "work continues after", ("E06", "E13", "E14", "E15"), "resume_s", "outages", " s", of=LOSSES
            ),
        ),
        "The buffer is bounded; after 60 s no new work starts. A process that gets no connection for longer"
        " than its lease (30 s), while others do, is presumed dead: its finished jobs run again (P3). Jobs"
        " that still run after PostgreSQL was unavailable for a whole lease are cancelled and run again.",
    ),
    Promise(
        "P15",
        "Without Redis, calls continue within a share of the limit, or stop where you set that. After its"
        " return, rates are back within 5 s; so are slots, or after one lease if it lost its data.",
        (
            Zero(
                "calls that failed, were refused or lost their slot",
                LOST_REDIS,
                ("failed", "refused", "slots_lost"),
                "faults",
                LOSSES,
                "calls",
                unless="sent_without_the_store",
            ),
            Most(
                "nine tenths of the rate back after",
                LOST_REDIS,
                "buckets_full_s",
                "faults",
                " s",
                of=LOSSES,
            ),
            Most(
                "all slots are back, at a lease of 1 s, after",
                LOST_SLOTS,
                "slots_full_s",
                "faults",
                " s",
                of=LOSSES,
            ),
        ),
        "One lease is 30 s by default, 1 s in this experiment. In that time the holders of slots register"
        " them again, so that none is granted twice. After a loss of data, a call that needs a slot waits for"
        " up to a lease and 2 s, or is refused after its wait_s (2 s; for a client outside of jobs, its"
        " deadline).",
    ),
)
