/* takeover: a refresh was sent and its answer never came; may it be sent once more? (R7, R8, ADR 15)
 *
 * Time goes in ticks. A process takes any time between two steps; what has left arrives by the next tick.
 * Holds   grace: no replay arrives once the grace is over; strict: one replay at most, and none before the
 *         access token is dead; strict_family_revoke: none. One request may be answered "not processed"
 */
#define GRACE 3
#define LIFE 3
#define LEASE 2
#define ANY_TIME 9
#ifdef SEND_UNHELD
#define LEAVES_WITHIN ANY_TIME
#else
#define LEAVES_WITHIN LEASE           /* Deadline in token_transport.py: a first send, a replay under strict */
#endif

mtype = { nothing, intent, sent, unknown, grace, strict, family };
mtype phase = nothing, policy;        /* the rotation row; the provider's replay policy */
byte owner, replays, age, lease, life = LIFE, sends;
byte leave_by[3], wire[3];            /* ticks for which a process may still send; its request is on the way */
bool sent_before, spent, refused_once, settled, given_up;

#define replayable (phase == unknown || phase == intent && sent_before && lease == 0)
inline take(p) { phase = intent; owner = p; lease = LEASE }
inline release(p) { atomic { if          /* rotation_release.sql: this send changed nothing */
    :: owner == p && replays == 0 && (phase == sent || phase == unknown) ->
        phase = nothing; sent_before = false; age = 0; owner = 0
    :: owner == p && replays > 0 && phase == sent -> phase = unknown; replays--; owner = 0
    :: else fi } }

proctype process(byte p) {
    byte read;
    do
    :: atomic { settled || given_up -> break }
    :: atomic { !settled && !given_up && (phase == nothing || phase == intent && !sent_before && lease == 0) ->
           take(p); leave_by[p] = LEAVES_WITHIN; goto send }                       /* endpoint_take.sql */
#ifdef TAKEOVER_SENDS
    :: atomic { phase == sent && lease == 0 -> take(p); leave_by[p] = LEAVES_WITHIN; goto send }
#endif
    :: atomic { phase == sent && lease == 0 -> phase = unknown }          /* UnknownOutcomes.recover */
    :: atomic { replayable && !settled && !given_up -> read = replays; if /* replay_decision */
           :: policy == grace && age < GRACE -> leave_by[p] = GRACE - age
           :: policy == grace && age >= GRACE -> given_up = true; break
#ifndef REPLAY_BEFORE_EXPIRY
           :: policy == strict && life == 0 && read == 0 -> leave_by[p] = LEAVES_WITHIN
#else
           :: policy == strict && read == 0 -> leave_by[p] = LEAVES_WITHIN
#endif
           :: policy == strict && life == 0 && read > 0 -> given_up = true; break
           :: policy == family && life == 0 -> given_up = true; break
           :: else -> goto again
           fi }
       atomic { if                                                        /* rotation_replay.sql */
#ifdef REPLAY_UNCOUNTED
           :: replayable ->
#else
           :: replayable && replays == read ->
#endif
               take(p)
           :: else -> goto again
           fi }
send:  atomic { read = 0; if                                                        /* rotation_sent.sql */
           :: phase == intent && owner == p && !settled && !given_up ->
               phase = sent; replays = replays + sent_before; sent_before = true
           :: else -> goto again
           fi }
       atomic { if                                                        /* right before the first byte */
#ifndef REPLAY_UNHELD
           :: leave_by[p] == 0 -> release(p); goto again
           :: leave_by[p] > 0 ->
#else
           ::
#endif
               wire[p] = 1
           fi }
       if
       :: atomic { !refused_once -> refused_once = true; wire[p] = 0 } release(p)        /* a 429 */
       :: atomic { wire[p] = 0; sends++;
              assert(policy != grace || !spent || age <= GRACE);
              assert(policy != strict || sends == 1 || sends == 2 && life == 0);
              assert(policy != family || sends == 1);
              if :: spent && policy != grace -> given_up = true
                 :: !spent || policy == grace -> spent = true; settled = true            /* answered */
                 :: sends < 4 -> spent = true; if :: owner == p && phase == sent -> phase = unknown :: else fi /* lost */
                 :: sends < 4 -> spent = true                             /* the process died with it */
              fi }
       fi;
again: skip
    od
}
#define less(n) n = (n > 0 && n < ANY_TIME -> n - 1 : n)
active proctype time() {
    do
    :: atomic { wire[1] < 2 && wire[2] < 2 && !settled && !given_up ->
           less(life); less(lease); less(leave_by[1]); less(leave_by[2]);
           age = (sent_before && age <= GRACE -> age + 1 : age);
           wire[1] = wire[1] * 2; wire[2] = wire[2] * 2 }
    :: atomic { settled || given_up -> break }
    od
}
init { atomic {
    if :: policy = grace :: policy = strict :: policy = family fi;
    run process(1); run process(2) } }
