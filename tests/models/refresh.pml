/* refresh: a single-use refresh token, three processes on two hosts, two deaths (R5-R7, R11).
 *
 * Time is left out: a lease may end at any moment, and a process may stand still between any two steps.
 * Holds   no token is presented twice; an answer is lost only by a death between the provider and the journal
 * What stands behind an ifdef leaves one safeguard out, and must be seen to break.
 */
#define PROCESSES 3
#define DEATHS 2
#define LAST 3                        /* generations */
#define disk(id) (id == PROCESSES)    /* the last process lives on the other host */

mtype = { nothing, intent, sent, unknown };
mtype phase = nothing;                /* the rotation row, with its owner */
byte owner, stored = 1, provider = 1; /* generations: in the database, and at the provider */
byte journal[2], deaths, done;
bool lost_in_the_window, given_up;

inline settle(answer) {               /* credential_settle.sql: g becomes g + 1, by compare-and-set */
    atomic { if
#ifdef BLIND_SETTLE
    :: stored = answer; phase = nothing; given_up = false
#else
    :: stored + 1 == answer -> stored = answer; phase = nothing; given_up = false
    :: else
#endif
    fi }
}
inline mark_sent(id, g) {             /* rotation_sent.sql: by compare-and-set, before the first byte */
    atomic { if
#ifdef UNCHECKED_SENT
    :: phase = sent
#else
    :: phase == intent && owner == id && stored == g -> phase = sent
    :: else -> goto again
#endif
    fi }
}
inline may_die() { if :: atomic { deaths < DEATHS -> deaths++; goto start } :: true fi }

proctype process(byte id) {
    byte g, answer;
start:                                /* replay_journal, at each start */
    atomic { g = stored; answer = 0; if :: journal[disk(id)] == g + 1 -> settle(g + 1) :: else fi }
again:
    atomic { g = stored; answer = 0; if             /* plan_refresh, and endpoint_take.sql */
    :: g == LAST || given_up -> goto end
    :: g < LAST && !given_up && (phase == nothing || phase == intent) -> phase = intent; owner = id
#ifdef TAKEOVER_AFTER_SENT
    :: g < LAST && !given_up && phase == sent -> phase = intent; owner = id
#endif
    :: g < LAST && !given_up && (phase == sent || phase == unknown) -> goto recover
    fi }
    may_die();
#ifndef SENT_AFTER_THE_SEND
    mark_sent(id, g);
#endif
    may_die();
    atomic { assert(g == provider); provider++; answer = provider } /* else a used one: burnt */
#ifdef SENT_AFTER_THE_SEND
    mark_sent(id, g);
#endif
    if :: atomic { deaths < DEATHS -> deaths++; lost_in_the_window = true; goto start } :: true fi;
#ifndef NO_JOURNAL
    journal[disk(id)] = answer;       /* sealed and fsynced */
#endif
    may_die();
    settle(answer);
    goto again;
recover:                              /* UnknownOutcomes: nobody sends here */
    if
    :: journal[disk(id)] == g + 1 -> settle(g + 1)
    :: else -> atomic { if
        :: stored == g && phase == sent -> phase = unknown      /* rotation_unknown.sql */
        :: stored == g && phase == unknown -> given_up = true   /* credential_require_reauth.sql */
        :: else
        fi }
    fi;
    goto again;
end: done++
}
init {
    atomic { run process(1); run process(2); run process(3) }
    done == PROCESSES;
    assert(stored == provider || lost_in_the_window)
}
