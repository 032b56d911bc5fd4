"""README's promises: what each says, its figures and what they are counted of, and its limit.

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
"""The part of E12 that is about tokens; the others are about jobs."""
BACKLOG = "a standing backlog"

PROMISES = (
    Promise(
        "P1",
        "A job whose enqueue returned is not lost.",
        (
            Zero(
                "accepted jobs lost where workers are killed or drained",
                ("E01", "E05"),
                ("lost",),
                "deaths or drains",
                LOSSES,
                beside="jobs",
            ),
            Zero(
                "where their connections' backends are ended",
                ("E11",),
                ("lost",),
                "backends at work",
                LOSSES,
                beside="jobs",
            ),
            Zero(
                "where the database crashes, fails over or has no room",
                ("E13", "E15", "E17"),
                ("lost",),
                "faults",
                LOSSES,
                beside="jobs",
            ),
            Zero("in a soak", ("E52",), ("lost",), "faults of ten kinds", LOSSES, beside="jobs"),
            Most(
                "lost at ten fail-overs to a stand-by that is not waited for and lacks the last 0.5 s:",
                ("E15",),
                "lost_with_an_asynchronous_standby",
                "jobs",
            ),
            Zero(
                "commits in doubt that were told wrongly",
                ("E12",),
                ("false_success",),
                "commits",
                without=OF_A_REFRESH,
            ),
            Zero(
                "impossible states after a kill at one of the named points of the code",
                ("E02",),
                ("illegal_states",),
                "kills",
                what="jobs",
            ),
        ),
        "PostgreSQL with synchronous_commit on, and its disk survives. A stand-by that is not waited for has"
        " not got the last moments: what was accepted in them is lost if it takes over.",
    ),
    Promise(
        "P2",
        "A result, retry or dead letter of a superseded lease is not accepted.",
        (
            Zero(
                "late writes accepted",
                ("E03", "E04"),
                ("stale_accepted",),
                "late writes",
                ("late_writes_refused",),
            ),
        ),
        "The handler's own effects elsewhere are not undone.",
    ),
    Promise(
        "P3",
        "A job may run more than once; extra runs are no more than the jobs in flight when their worker was"
        " killed, frozen, or cut off from PostgreSQL for longer than its lease.",
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
                "extra runs in a soak with all these faults",
                ("E52",),
                "extra_runs",
                "runs",
                of=("runs",),
                added=True,
            ),
            Zero(
                "duplicates after commits in doubt",
                ("E12",),
                ("duplicates",),
                "commits",
                without=OF_A_REFRESH,
            ),
        ),
        "At least once: handlers have to be idempotent.",
    ),
    Promise(
        "P4",
        "After SIGKILL 99 % of the work goes on within lease + sweep + 1 s.",
        (
            Most(
                "jobs of the killed run again where death is proven, p99",
                ("E01",),
                "recovery_s",
                "jobs in flight",
                " s",
                "p99",
                of=("in_flight_at_kills",),
                what="death is proven",
            ),
            Most(
                "the last one",
                ("E01",),
                "recovery_s",
                "jobs in flight",
                " s",
                of=("in_flight_at_kills",),
                what="death is proven",
            ),
            Most(
                "where it is presumed, at a lease of 5 s, p99",
                ("E01",),
                "recovery_s",
                "jobs in flight",
                " s",
                "p99",
                of=("in_flight_at_kills",),
                what="death is presumed",
            ),
            Most(
                "the last one",
                ("E01",),
                "recovery_s",
                "jobs in flight",
                " s",
                of=("in_flight_at_kills",),
                what="death is presumed",
            ),
            Most(
                "bound: a lease of 5 s, a sweep of a sixth of it, and 1 s, so",
                ("E01",),
                "recovery_bound_s",
                "kills",
                " s",
                of=("kills",),
                what="death is presumed",
            ),
            Most(
                "the last one at the default lease of 30 s",
                ("E01",),
                "recovery_s",
                "jobs in flight",
                " s",
                of=("in_flight_at_kills",),
                what="death is presumed, at the default lease",
            ),
            Most(
                "bound: this, a sweep of 5 s, and 1 s, so",
                ("E01",),
                "recovery_bound_s",
                "kills",
                " s",
                of=("kills",),
                what="death is presumed, at the default lease",
            ),
        ),
        "At once where death is proven (same host); else after the lease, by default 30 s. What ran beside"
        " others runs again one at a time in each process (P5), so long jobs wait for each other.",
    ),
    Promise(
        "P5",
        "A job that kills its worker does so three times at most; its neighbours lose nothing.",
        (
            Most("processes killed by one job", ("E07",), "crashes_of_a_bomb", "such jobs"),
            Zero(
                "neighbours or their attempts lost",
                ("E07",),
                ("neighbours_lost", "attempts_lost"),
                "deaths",
                ("deaths",),
                among=("suspects",),
            ),
        ),
        "Neighbours run again, each alone, so they wait.",
    ),
    Promise(
        "P6",
        "No refresh token is burnt, but in one window that is measured.",
        (
            Zero(
                "burnt outside the window",
                ("E42", "E43", "E44", "E45"),
                ("burnt", "burnt_outside_window", "burnt_where_it_can_be_had_again"),
                "requests or faults",
                ("provider_posts", "n"),
            ),
            Zero(
                "impossible states after a kill in a refresh",
                ("E02",),
                ("illegal_states",),
                "kills",
                what="refreshes",
            ),
            Zero(
                "burnt, sent twice or told wrongly after commits in doubt",
                ("E12",),
                ("burnt", "second_sends", "false_success"),
                "commits",
                what=OF_A_REFRESH,
            ),
            Most(
                "burnt where no answer is given again, and this one was cut, or its process killed"
                " before it told that it had kept it:",
                ("E43",),
                "burnt_where_nobody_can_help",
                "such answers",
                of=("lost_without_grace",),
                added=True,
            ),
            Most("window p50", ("E43",), "window_ms", "refreshes", " ms", "p50", ("window_n",)),
            Most("its p99", ("E43",), "window_ms", "refreshes", " ms", "p99", ("window_n",)),
            Most(
                "of an idle process, p99",
                ("E43",),
                "window_idle_ms",
                "refreshes",
                " ms",
                "p99",
                ("window_idle_n",),
            ),
        ),
        "The window: after the provider's commit and before our fsync the process dies or the answer is lost"
        " on its way, and the provider gives no grace. The disk with the journal survives.",
    ),
    Promise(
        "P7",
        "Requests in any window T are no more than burst + rate × T, as the upstream counts them.",
        (
            Most("requests above it in the worst window", RATES, "rate_over", "calls", of=("calls", "n")),
            Most(
                "above it in all, by one process that alone cannot reach Redis for six times 10 s:",
                ("E23",),
                "rate_over_with_one_share",
                "calls",
            ),
            Most(
                "of the former, beyond what an outage may add, in seconds of the rate",
                OUTAGES,
                "rate_beyond_s",
                "calls",
            ),
            Most(
                "longest time on the way, which excuses as many requests as the rate gives in it:",
                RATES,
                "lag_s",
                "calls",
                " s",
                of=("calls", "n"),
            ),
        ),
        "Counted where requests arrive: of one that was on its way for longer than the next, as much comes"
        " on top. While some processes count by Redis and others by their share, the shares come on top,"
        " too: 0.5 s at each change, and as long as it lasts where one process alone cannot reach Redis.",
    ),
    Promise(
        "P8",
        "Calls in flight are no more than the slots, as the upstream counts them.",
        (
            Zero(
                "over the limit",
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
        "A process that alone cannot reach Redis has its share on top, as long as that lasts. The API may"
        " still work on a call whose process was killed, was frozen beyond its lease, or gave up at its"
        " deadline. After a fail-over that loses the last grants, old and new slots overlap for one lease.",
    ),
    Promise(
        "P9",
        "Beside a tenant with 100 times the load others wait twice their p99 alone + one job at most.",
        (
            Most("p99 alone", ("E46",), "alone_ms", "jobs", " ms", "p99", ("alone_n",), what=BACKLOG),
            Most(
                "beside it, of whose jobs a backlog stands,",
                ("E46",),
                "loud_ms",
                "jobs",
                " ms",
                "p99",
                ("loud_n",),
                what=BACKLOG,
            ),
            Most(
                "bound, twice the p99 alone and one job of 150 ms:",
                ("E46",),
                "bounds_ms",
                "jobs",
                " ms",
                "loud",
                ("alone_n",),
                what=BACKLOG,
            ),
            Most(
                "beside one with jobs of 500 ms", ("E46",), "slow_ms", "jobs", " ms", "p99", ("slow_n", "n")
            ),
            Most(
                "the same, with a cap on it",
                ("E46",),
                "slow_capped_ms",
                "jobs",
                " ms",
                "p99",
                ("slow_capped_n", "n"),
            ),
        ),
        "One process with 10 slots. Turns count jobs, not their length: slow jobs need a cap of their"
        " tenant, and are measured beside quiet ones that ask for a fifth of what the process can do.",
    ),
    Promise(
        "P10",
        "Retries add 20 % at most; one request at a time asks whether an API is well again; when the trigger"
        " ends, 95 % of the calls do well within 60 s.",
        (
            Most(
                "requests a call, the worse of an API that queues and one that sheds:",
                ("E38",),
                "amplification",
                "calls sent",
                of=("sent",),
            ),
            Most(
                "95 % of the calls do well again after",
                ("E38",),
                "recovery_s",
                "APIs",
                " s",
                of=("triggers",),
            ),
            Most(
                "where it was gone for 5 s, as the breaker does not look for 60 s,",
                ("E38",),
                "again_s",
                "APIs",
                " s",
                of=("triggers",),
                what="gone briefly",
            ),
            Most(
                "where it was gone for 90 s, past that look,",
                ("E38",),
                "again_s",
                "APIs",
                " s",
                of=("triggers",),
                what="gone for long",
            ),
            Zero("probes beside another", ("E40",), ("two_probes",), "probes"),
        ),
        "At a steady 80 % of what the API can do, of which nine tenths are gone for 30 s. Where it queues,"
        " the breaker refuses most calls meanwhile. It looks again after 60 s, so a shorter outage costs a"
        " minute, too, and 3 s more; then after twice as long each time: where an outage outlasts that look,"
        " calls do well after the next one, up to 10 min later.",
    ),
    Promise(
        "P11",
        "No answer costs more than 32 MiB, 50 ms of the event loop, or the call's deadline.",
        (
            Zero("processes killed by an answer", ("E33",), ("killed",), "answers"),
            Most("memory", ("E33",), "peak_mib", "answers", " MiB"),
            Most("loop still for", ("E33",), "stall_ms", "answers", " ms"),
            *(
                Most(words.format(mib), ("E33",), counter, "answers", unit, what=f"read as JSON, {mib} MiB")
                for mib in (1, 15)
                for words, counter, unit in (
                    ("memory once its caller reads {} MiB as JSON", "read_mib", " MiB"),
                    ("and loop still for", "read_stall_ms", " ms"),
                )
            ),
            Most("loop still while names resolve slowly or not", ("E35",), "max_stall_ms", "calls", " ms"),
            Most("longest call with a deadline of 10 s", ("E31",), "took_s", "calls", " s"),
        ),
        "A body of 16 MiB at most, as set by default, held until its caller reads it: json() of 1 MiB keeps"
        " these bounds, of 15 MiB it may take 420 MiB and 1.4 s; set max_body_bytes where answers are small."
        " A call may end up to 0.5 s after its deadline.",
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
        "Looked for in logs, events, errors, dead letters, the database and on command lines. Metrics,"
        " traces, dashboard and mail do not exist yet.",
        "`make security`",
    ),
    Promise(
        "P13",
        "No tenant reads or writes what is another's.",
        (
            Zero(
                "cross-tenant reads and writes",
                ("S27",),
                ("cross_tenant_reads", "cross_tenant_writes"),
                "ways to ask",
            ),
            Zero(
                "rows of others over shared connections", ("S27",), ("foreign_rows", "settings_left"), "uses"
            ),
            Zero("answers to another's question", ("E29",), ("wrong_answers",), "answers"),
        ),
        "Asked of every command, method and statement that takes a tenant's name. Row-level security guards"
        " as a second wall what sets up, looks up and operates; enqueue, claim and refresh rely on their SQL"
        " alone.",
        "`make security`",
    ),
    Promise(
        "P14",
        "PostgreSQL gone: workers stay up, keep what was finished for 60 s, and go on within 5 s.",
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
                "jobs of one and a half leases that ran again, and were not lost:",
                ("E14",),
                "long_jobs_run_again",
                "such jobs",
                of=("long_jobs",),
            ),
            Most("works again after", ("E06", "E13", "E14", "E15"), "resume_s", "outages", " s", of=LOSSES),
        ),
        "A bounded buffer; after 60 s no new work is begun. A process that gets no connection for longer"
        " than its lease (30 s), while others have some, is taken for dead by them: what it had finished"
        " runs again (P3). What still runs when the database was away for a whole lease is cancelled and runs"
        " again.",
    ),
    Promise(
        "P15",
        "Redis gone: calls go on by their share, or not at all where so set. When it is back, rates are full"
        " within 5 s; slots too or, if it lost its data, after one lease.",
        (
            Zero(
                "calls failed, refused or without their slot for it",
                LOST_REDIS,
                ("failed", "refused", "slots_lost"),
                "faults",
                LOSSES,
                "calls",
                unless="sent_without_the_store",
            ),
            Most(
                "nine tenths of the rate again after", LOST_REDIS, "buckets_full_s", "faults", " s", of=LOSSES
            ),
            Most(
                "all slots again, at a lease of 1 s, after",
                LOST_SLOTS,
                "slots_full_s",
                "faults",
                " s",
                of=LOSSES,
            ),
        ),
        "One lease is 30 s by default, 1 s in this experiment. In that time whoever holds a slot tells of"
        " it, so that none is given twice: after a loss of data a call that needs a slot waits for up to a"
        " lease and 2 s, or gets LimitExceededError after its wait_s (2 s; of a client outside of jobs its"
        " deadline).",
    ),
)
