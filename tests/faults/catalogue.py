"""Every experiment: what is done, which promises it stands for, what must hold, and which files show it.

One without a file says why there is none. tests/lint/test_catalogue.py keeps this complete,
support/verdicts.py tells how each did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

YET = "not written yet"
PROXY = "not built yet: the socket proxy"
MAIL = "not built yet: mail"
DASHBOARD = "not built yet: the dashboard"


@dataclass(frozen=True, slots=True)
class Experiment:
    """*files* below tests/faults, or *absent*: why there are none; *promises* of docs/reliability.md."""

    id: str
    what: str
    promises: Sequence[str]
    limit: str
    files: Sequence[str] = ()
    absent: str = ""


def _experiment(
    id: str, subject: str, promises: str, limit: str, *files: str, absent: str = ""
) -> Experiment:
    return Experiment(id, subject, promises.split(), limit, files, absent)


CATALOGUE = (
    _experiment(
        "E01",
        "worker kill storm",
        "P1 P2 P3 P4",
        "lost 0, stale writes 0, extra runs <= in flight at kills, 99 % run again within lease + sweep + 1 s",
        "test_e01_kill_storm.py",
    ),
    _experiment(
        "E02", "crash-point sweep", "P1 P2 P3 P6", "illegal end states 0", "test_e02_crash_points.py"
    ),
    _experiment("E03", "zombie", "P2", "stale writes accepted 0", "test_e03_zombie.py"),
    _experiment(
        "E04",
        "blocked loop",
        "P2 P3",
        "both runs accepted 0, stall reported within 10 %",
        "test_e04_blocked_loop.py",
    ),
    _experiment(
        "E05",
        "drain",
        "P1 P3",
        "finished work run again 0, attempts burnt 0, exit <= grace + 1 s",
        "test_e05_drain.py",
    ),
    _experiment(
        "E06", "all die at once", "P14", "alive and idle 0, works again <= 5 s", "test_e06_all_die_at_once.py"
    ),
    _experiment(
        "E07",
        "memory bomb",
        "P5",
        "crashes of the bomb <= 3, neighbours' jobs and attempts lost 0",
        "test_e07_memory_bomb.py",
    ),
    _experiment("E08", "poison", "P1", "jobs that go round for ever 0", "test_e08_poison.py"),
    _experiment("E09", "false rescue", "P3", "living jobs rescued 0", "test_e09_false_rescue.py"),
    _experiment(
        "E10", "mixed versions", "P1", "failed jobs 0, no lock over 1 s", "test_e10_mixed_versions.py"
    ),
    _experiment(
        "E11", "backend kills", "P1 P2", "lost 0, stale writes accepted 0", "test_e11_backend_kills.py"
    ),
    _experiment(
        "E12",
        "commit in doubt",
        "P1 P3 P6",
        "false successes 0, duplicates 0, COMMITs sent again 0",
        "test_e12_commit_in_doubt.py",
    ),
    _experiment(
        "E13", "database crash", "P1 P2 P14", "acknowledged and lost 0", "test_e13_database_crash.py"
    ),
    _experiment(
        "E14",
        "database away for 60 s",
        "P14",
        "finished results lost 0, works again <= 5 s, <= 1 line/s",
        "test_e14_database_away.py",
    ),
    _experiment(
        "E15",
        "failover of the database",
        "P1 P14",
        "lost 0 with synchronous replication",
        "test_e15_failover.py",
    ),
    _experiment("E16", "black hole", "P14", "longest wait <= 30 s", "test_e16_black_hole.py"),
    _experiment("E17", "disk full", "P1", "acknowledged and lost 0", "test_e17_disk_full.py"),
    _experiment(
        "E18",
        "old snapshot",
        "P9",
        "claim p99 bounded, the snapshot's age alarms",
        "test_e18_old_snapshot.py",
    ),
    _experiment("E19", "connections gone", "P14", "waits without end 0", "test_e19_connections_gone.py"),
    _experiment(
        "E20",
        "clocks",
        "P3 P7 P8",
        "leases ended early 0, over limit at the upstream 0",
        "test_e20_clocks.py",
        "test_e20_worker_clock.py",
    ),
    _experiment(
        "E21",
        "Redis killed",
        "P7 P8 P15",
        "over limit at the upstream 0, calls failed 0",
        "test_e21_redis_killed.py",
    ),
    _experiment("E22", "Redis emptied", "P7 P8 P15", "over limit 0, calls failed 0", "test_e22_flushed.py"),
    _experiment(
        "E23",
        "Redis stalls",
        "P7 P8 P15",
        "calls failed 0, no rush when it is back",
        "test_e23_redis_stalls.py",
        "test_e23_one_cut_off.py",
    ),
    _experiment(
        "E24",
        "Redis failover",
        "P7 P8 P15",
        "never over the limit for more than a lease",
        "test_e24_redis_failover.py",
    ),
    _experiment(
        "E25",
        "Redis full or evicting",
        "P7 P8 P15",
        "over limit 0, reason reported",
        "test_e25_memory_limit.py",
    ),
    _experiment(
        "E26", "old state of Redis", "P7 P8 P15", "slots leaked after a lease 0", "test_e26_old_state.py"
    ),
    _experiment("E27", "slot leak", "P8", "leaked 0, over limit 0", "test_e27_slot_leak.py"),
    _experiment("E28", "many waiters", "P8", "each served once, none starves", "test_e28_many_waiters.py"),
    _experiment(
        "E29",
        "cancel storm on the stores",
        "P8 P13",
        "wrong answers 0, slots and connections missing 0",
        "test_e29_cancel_storm.py",
        "test_e29_cancelled_queries.py",
    ),
    _experiment(
        "E30", "scripts against the model", "P7 P8", "answers that differ 0", "test_e30_reference.py"
    ),
    _experiment("E31", "slow upstream", "P11", "each call ends by its deadline", "test_e31_slow_upstream.py"),
    _experiment("E32", "lying upstream", "P11 P13", "mixed answers 0, unnamed errors 0", "test_e32_liar.py"),
    _experiment("E33", "bombs", "P11", "<= 32 MiB a call, loop still <= 50 ms", "test_e33_bombs.py"),
    _experiment("E34", "redirects", "P12", "credentials at a foreign host 0", "test_e34_redirects.py"),
    _experiment(
        "E35",
        "TLS and DNS",
        "P11 P12",
        "sent to a server without proof of its name 0, loop still <= 50 ms",
        "test_e35_tls_dns.py",
    ),
    _experiment("E36", "hints", "P7", "undercut 0, crashes 0", "test_e36_hints.py"),
    _experiment("E37", "herd", "P7", "early 0, <= 5 % within 200 ms", "test_e37_herd.py"),
    _experiment(
        "E38",
        "metastable overload",
        "P10",
        "requests <= 1.2 a call, 95 % good again within 60 s",
        "test_e38_metastable.py",
    ),
    _experiment("E39", "client pool", "P8 P13", "stuck slots 0, mixed answers 0", "test_e39_client_pool.py"),
    _experiment("E40", "breaker", "P10", "probes at once <= 1, wrong opens 0", "test_e40_breaker.py"),
    _experiment(
        "E41", "refresh storm", "P7", "token calls <= cap, failed jobs 0", "test_e41_refresh_storm.py"
    ),
    _experiment("E42", "refresh race", "P6", "posts = generations, burnt 0", "test_e42_refresh_race.py"),
    _experiment(
        "E43",
        "lost answer",
        "P6",
        "burnt 0 outside the window, which is measured",
        "test_e43_lost_answer.py",
    ),
    _experiment("E44", "frozen refresher", "P6", "burnt 0", "test_e44_frozen_refresher.py"),
    _experiment("E45", "save fails", "P6", "burnt 0", "test_e45_save_fails.py"),
    _experiment(
        "E46",
        "noisy neighbour",
        "P9",
        "p99 of the quiet <= 2 x alone + one job",
        "test_e46_noisy_neighbour.py",
    ),
    _experiment(
        "E47", "backlog", "P9", "claims cost the same, the newest urgent job is served", "test_e47_backlog.py"
    ),
    _experiment("E48", "proxy abuse", "P13", "others are served", absent=PROXY),
    _experiment("E49", "mail in doubt", "P3", "lost 0, duplicates <= 1 a cut", absent=MAIL),
    _experiment(
        "E50", "stuck log sink", "P14", "loop still <= 50 ms, drops counted", "test_e50_stuck_log_sink.py"
    ),
    _experiment("E51", "dashboard pressure", "P9", "claim p99 + 10 % at most", absent=DASHBOARD),
    _experiment(
        "E52",
        "soak of half an hour",
        "P1 P2 P3 P7 P8",
        "all of these at the end; an hour adds 20 MiB and 12 descriptors at most",
        "test_e52_soak.py",
    ),
)


def experiment(id: str) -> Experiment | None:
    """The row of *id*; None for what has no number."""
    return next((experiment for experiment in CATALOGUE if experiment.id == id), None)
