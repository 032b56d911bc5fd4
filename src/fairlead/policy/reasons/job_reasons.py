"""Why a job waits, and how its attempts end."""

from __future__ import annotations

from fairlead.policy.reasons.reason import end, refusal, wait

# ---- why it waits, as `fairlead jobs explain` shows it

RUNNING = wait(
    "running", "An attempt is running or claimed.", "wait for its end, or stop it with `fairlead jobs cancel`"
)
NOT_DUE = wait(
    "not_due",
    "Its start time has not come, or it waits for a retry.",
    "make it due with `fairlead jobs retry`",
)
FOLLOWS = wait(
    "follows",
    "The run of the job that had its unique key has not ended.",
    "wait for the end of that run, or stop it with `fairlead jobs cancel`",
)
PAUSED = wait(
    "paused", "A pause covers the job.", "see `fairlead jobs pauses`, and end it with `fairlead jobs resume`"
)
CAPPED = wait(
    "capped",
    "Its tenant or group runs as many jobs as its cap allows.",
    "wait, or raise the cap with `fairlead tenants caps set`",
)
NO_WORKER = wait("no_worker", "No process is alive to run it.", "start `fairlead run`")
NO_HANDLER = wait(
    "no_handler",
    "No worker takes its kind from its queue.",
    "start a worker with the module that declares it (`fairlead run --app MODULE:OBJECT`)",
)
SUSPECT = wait(
    "suspect",
    "It was in flight when its worker crashed, so it runs while its worker has no other job.",
    "wait until a worker has no other job, or start another `fairlead run`",
)
QUEUED = wait(
    "queued", "Its lane is ready, and others are ahead of it.", "wait, or start more of your workers"
)
LANE_NOT_READY = wait(
    "lane_not_ready",
    "The next sweep of the lanes makes its lane ready.",
    "wait for up to a minute until the next sweep",
)
FINISHED = end(
    "finished", "It is completed, cancelled or discarded.", "read the result with `fairlead jobs show`"
)

# ---- how an attempt ends

CRASHED = wait(
    "crashed",
    "The worker died or did not renew the job's lease in time; the run does not count as an attempt.",
    "see the log and the memory of your worker",
)
DRAIN = wait(
    "drain", "The worker stops and made the job available again.", "wait for another worker to run it"
)
LEASE_LOST = wait(
    "lease_lost",
    "The worker could not renew its lease in time and stopped the job.",
    "check your database, and that none of your handlers blocks the event loop",
)
JOB_TIMEOUT = end(
    "job_timeout",
    "The attempt took longer than the timeout of the job.",
    "give the kind a longer `timeout_s`, or split your work",
)
HANDLER_ERROR = end(
    "handler_error",
    "Your handler raised an exception of a class without a usable name.",
    "read the traceback with `fairlead dlq show`",
)
UNCLASSIFIED = end(
    "unclassified",
    "No rule matches the error.",
    "read its text, and add a pattern to your profile or declare it transient",
)
OUTCOME_REFUSED = end(
    "outcome_refused",
    "Your handler returned an outcome that cannot be stored.",
    "correct what your handler returns",
)
DISCARDED = end(
    "discarded", "Your handler discarded the job.", "read the handler's reason with `fairlead dlq show`"
)
POISON = end(
    "poison",
    "Its workers died as often as the crash limit allows.",
    "find what kills the worker, then `fairlead dlq redrive`",
)
EXPIRED = end("expired", "It was not run before its expiry.", "enqueue it again with a larger `expires_in_s`")
SUBSCRIBER_FAILED = end(
    "subscriber_failed",
    "A subscriber of a notification failed.",
    "read its exception, and correct your subscriber; it is notified again",
)
DEAD_LETTERS_FULL = refusal(
    "dead_letters_full",
    "The queue has reached its limit of open dead letters.",
    "fix the cause, then `fairlead dlq redrive`, `resolve` or `abandon`",
)
