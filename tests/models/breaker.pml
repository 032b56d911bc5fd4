/* breaker: half open, over three processes: one probe at a time decides, and nothing else does (G6, R33).
 *
 * Time goes in ticks. A process that is not frozen ends its call before the probe's time is over.
 * Holds   one probe at a time, frozen ones aside; only the probe of now closes or opens the breaker; a probe
 *         that never comes back holds up nobody
 */
#define PROCESSES 3
#define CALL 2                        /* a probe has so long: the deadline of its call */
#define PROBES 5

mtype = { closed, open, half_open };
mtype mode = open;
byte until = 1, probes, freezes;      /* until: ticks; the number of the probe stands for the end of its time */
bool probing[PROCESSES], frozen[PROCESSES], dead;

#define live(p) (probing[p] && !frozen[p])
#define gone(p) (frozen[p] || (dead && p == 0))

inline report(number) {               /* policy/limits/breaker.py: recorded */
    if
#ifdef PROBE_UNNAMED
    :: number > 0 && mode == half_open ->
#elif defined(EVERY_CALL_DECIDES)
    :: mode == half_open && (number == probes || number == 0) ->
#else
    :: mode == half_open && number == probes ->
#endif
        assert(number == probes);
        if
        :: mode = closed; until = 0   /* healthy */
        :: mode = open; until = 1     /* unhealthy */
        :: mode = open; until = 0     /* neutral, or not reached, by the same process as before */
        fi
    :: else
    fi
}
proctype process(byte p) {
    byte mine;
    if :: atomic { p == 2 -> report(0) } :: true fi;     /* a call that was sent before it opened */
    do
    :: atomic { mode != closed && probes < PROBES && !gone(p) &&          /* judge: may it be sent? */
#ifdef EACH_IS_A_PROBE
                (mode == half_open || until == 0) ->
#elif defined(PROBE_WITHOUT_END)
                (mode == open && until == 0) ->
#else
                until == 0 ->
#endif
           mode = half_open; until = CALL; probes++; mine = probes; probing[p] = true;
           assert(live(0) + live(1) + live(2) <= 1) }
end:   atomic { !gone(p) -> probing[p] = false; report(mine); mine = 0 }    /* who is dead stays here */
    :: atomic { mode == closed || probes == PROBES -> break }
    od
}
active proctype world() {
    do
    :: atomic { freezes < 2 -> freezes++; if :: frozen[1] = true :: frozen[2] = true fi }
    :: atomic { frozen[1] -> frozen[1] = false }
    :: atomic { frozen[2] -> frozen[2] = false }
    :: atomic { !dead -> dead = true }
    :: atomic { until > 0 && !(until == 1 && mode == half_open && (live(1) || live(2) || live(0) && !dead)) ->
           until--;                   /* who thaws after its time has no call any more, only its report */
           if :: until == 0 -> probing[0] = false; probing[1] = false; probing[2] = false :: else fi }
    :: atomic { mode == closed || probes == PROBES -> break }
    od
}
init { atomic { run process(0); run process(1); run process(2) } }
