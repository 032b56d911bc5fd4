/* slots: leases of one slot in a store that may lose everything, three processes that may freeze (R23, R30).
 *
 * Time goes in ticks. A process that is not frozen does what is due before the next one; messages take any time.
 * Holds   calls in flight <= slots, those of frozen processes aside
 */
#define PROCESSES 3
#define SLOTS 1
#define LEASE 2
#define FREEZES 1

byte until[PROCESSES];   /* the store: ticks left of each lease */
byte left[PROCESSES];    /* the process: ticks for which it may go on, by its own clock */
byte asked[PROCESSES];   /* the same for an ask or a renewal under way, from the moment when it left */
bool calling[PROCESSES], frozen[PROCESSES];
byte learning, freezes; bool lost;

#define leases ((until[0] > 0) + (until[1] > 0) + (until[2] > 0))
#define live(p) (calling[p] && !frozen[p])

inline stop_in_time(p) {              /* Keeper: it stops by its own clock, before the lease can have ended */
#ifdef NO_SELF_FENCE
    skip
#else
    if :: live(p) && left[p] == 0 -> calling[p] = false :: else fi
#endif
}
inline answered(p, held) {            /* a lease counts from the send of what got it */
    atomic { !frozen[p];
#ifdef COUNT_FROM_THE_ANSWER
        asked[p] = LEASE;
#endif
        left[p] = (held -> asked[p] : 0); asked[p] = 0;
        calling[p] = left[p] > 0;
        assert(live(0) + live(1) + live(2) <= SLOTS) }
}
inline give_back(p) {                 /* pool.lua drop: by lease id, so that it is never another's */
#ifdef RELEASE_BY_COUNT
    if :: until[0] > 0 -> until[0] = 0 :: until[1] > 0 -> until[1] = 0 :: until[2] > 0 -> until[2] = 0 :: else fi
#else
    until[p] = 0
#endif
}
proctype process(byte p) {
    bool held;
    do
    :: atomic { !frozen[p] && !calling[p] -> held = false; asked[p] = LEASE }
       atomic { learning == 0 && leases < SLOTS -> until[p] = LEASE }
       answered(p, true)
    :: atomic { live(p) -> asked[p] = LEASE }
       if
       :: atomic { held = until[p] > 0 || learning > 0 || leases < SLOTS;
              if :: held -> until[p] = LEASE :: else fi }
          answered(p, held && calling[p])
       :: asked[p] = 0                /* it, or its answer, was lost on the way */
       fi
    :: atomic { live(p) -> calling[p] = false } atomic { !frozen[p] -> give_back(p) }
    :: atomic { live(p) && freezes < FREEZES -> freezes++; frozen[p] = true }
    :: atomic { frozen[p] -> frozen[p] = false; stop_in_time(p) }
    od
}
#define less(n) n = (n > 0 -> n - 1 : 0)
active proctype world() {
    byte p;
    do
    :: atomic { less(learning); p = 0;
           do :: p < PROCESSES -> less(until[p]); less(left[p]); less(asked[p]); stop_in_time(p); p++
              :: else -> break od; p = 0 }
    :: atomic { !lost -> lost = true; until[0] = 0; until[1] = 0; until[2] = 0;
#ifndef GRANTS_AFTER_LOSS
           learning = LEASE           /* clock.lua: grants_from = birth + one lease */
#endif
       }
    od
}
init { atomic { run process(0); run process(1); run process(2) } }
