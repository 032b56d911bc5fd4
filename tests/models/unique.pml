/* unique: callers change data and enqueue a job of one unique key, each in a transaction of its own (R53).
 *
 * A job reads the data when it begins. One waits already, and may expire before it answers for another (after that it
 * is a dead letter, and told of). Transactions are READ COMMITTED or
 * REPEATABLE READ; one that ends with 40001 is repeated.
 * Holds   in the end a job has read each committed change
 * What stands behind an ifdef leaves one safeguard out, and must be seen to break.
 */
#define CALLERS 2
#define WORKERS 2

mtype = { none, available, running, expired };
mtype holder = available;             /* what the job is that has the key; its number, and changes of its row */
byte job, jobs, version;
byte data, seen, loose;               /* committed changes; those that a job has read; jobs that have no key */
byte done, gone;
bool answered, inserting;             /* a job of the key is stored and not committed: others wait */

#ifdef BEGUN_ANSWERS
#define answers(state) (state == available || state == running)
#elif defined(EXPIRED_ANSWERS)
#define answers(state) (state == available || state == expired)
#else
#define answers(state) (state == available)          /* key_covers */
#endif
#ifdef SNAPSHOT_ANSWERS
#define stale false
#else
#define stale (repeatable && saw != version)         /* 40001: the row is another one than the snapshot has */
#endif
#define now_is(state) holder = state; version++
#define take_key jobs++; job = jobs; now_is(available)

proctype caller() {
    byte saw;
    mtype then;                       /* what its snapshot says of the holder */
    bool inserts, must, repeatable;
    if :: repeatable = true :: true fi;
again:
    atomic { saw = version; then = holder; must = false };
    atomic { !inserting ->            /* fairlead_enqueue: enqueue_insert first of all */
        if
        :: holder == none -> inserting = true; inserts = true
        :: holder != none && stale -> goto again
        :: holder != none && !stale -> must = !answers((repeatable -> then : holder))
        fi };
    atomic { inserts || !inserting -> /* COMMIT: enqueue_settle */
        if
        :: inserts -> inserting = false; take_key
        :: must && holder == available -> loose++            /* somebody else has the key by now */
        :: must && holder != available -> take_key
        :: !inserts && !must && stale -> goto again
#ifdef DECIDED_BEFORE_THE_COMMIT
        :: !inserts && !must && !stale -> skip
#else
        :: !inserts && !must && !stale ->
            if :: answers((repeatable -> then : holder)) -> answered = true :: else -> take_key fi
#endif
        fi;
        data++; done++ }
}
proctype worker() {
    byte mine, read;
    do
    :: atomic { holder == available -> now_is(running); mine = job; read = data }
       atomic { seen = (read > seen -> read : seen);
           if :: holder == running && job == mine -> now_is(none) :: else fi }
    :: atomic { loose > 0 -> loose--; read = data }
       atomic { seen = (read > seen -> read : seen) }
    :: done == CALLERS && holder != available && loose == 0 -> break
    od;
    gone++
}
active proctype clock() {
    if :: atomic { holder == available && job == 0 && !answered -> now_is(expired) } :: true fi;
    if :: atomic { holder == expired -> now_is(none) } :: true fi            /* job_expire */
}
init {
    atomic { run caller(); run caller(); run worker(); run worker() }
    gone == WORKERS;
    assert(seen == data)
}
