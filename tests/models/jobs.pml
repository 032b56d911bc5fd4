/* jobs: one job, the lease of its worker, rescue, completion, and a person who cancels it (R1, R2, R55).
 *
 * Time goes in ticks. A process that is not frozen has its heartbeat in each tick in which the database is there.
 * Holds   only the newest claim may end the job; who beats is never rescued from; the job is done at last; a cancelled
 *         one is given to no other worker, ends though its handler would not by itself, and keeps its place until it has ended
 */
#define PROCESSES 3
#define CLAIMS 4                      /* one more than freezes and deaths can take away */
#define LEASE 2
#define FREEZES 2

mtype = { available, running, completed, cancelled };
mtype state = available;
byte owner, attempt, claims;          /* lease_id: here the number of the claim, in truth a random one */
byte silent[PROCESSES], up_for = LEASE, freezes;
bool frozen[PROCESSES], dead, away, was_away;
bool asked, at_work;                  /* a person cancelled it; it has its place under a cap */

#define newest (state == running && mine == claims)
#ifdef NO_FENCE
#define accepted (state == running)
#elif defined(FENCE_BY_ATTEMPT)
#define accepted (state == running && my_attempt == attempt)
#else
#define accepted newest               /* job_complete.sql: lease_id = ANY(...) */
#endif
#define over (state == completed || state == cancelled)
#ifdef UNTOLD
#define told(p) false
#else
#define told(p) (asked && owner == p)      /* session_heartbeat.sql */
#endif
#define gone(p) (frozen[p] || (dead && p == 0))

proctype process(byte p) {
    byte mine, my_attempt;
    do
    :: atomic { state == available && !gone(p) && !away && claims < CLAIMS ->       /* job_claim.sql */
           assert(!asked); state = running; owner = p; at_work = true;
           silent[p] = 0; claims++; attempt++; mine = claims; my_attempt = attempt }
end:   atomic { !gone(p) && !away && (!asked || told(p) || !newest) ->     /* who is dead stays here */
           if
           :: accepted -> assert(newest); at_work = false;
               if :: asked -> state = cancelled :: state = completed fi
           :: else
           fi; mine = 0; my_attempt = 0 }
    :: atomic { over -> break }
    od
}
active proctype world() {
    byte p;
    do
    :: atomic { freezes < FREEZES -> freezes++; select(p : 0 .. PROCESSES - 1); frozen[p] = true; p = 0 }
    :: atomic { frozen[0] || frozen[1] || frozen[2] ->
           if :: frozen[0] -> p = 0 :: frozen[1] -> p = 1 :: frozen[2] -> p = 2 fi;
           frozen[p] = false; if :: !away -> silent[p] = 0 :: else fi; p = 0 }
    :: atomic { !dead -> dead = true }
    :: atomic { !was_away -> away = true; was_away = true }
    :: atomic { away -> away = false; up_for = 0 }
    :: atomic { !over && (up_for < LEASE || away || (gone(owner) || silent[owner]) && silent[owner] < LEASE) -> p = 0;   /* a tick */
           do :: p < PROCESSES ->
                  if :: !gone(p) && !away -> silent[p] = 0
                     :: else -> silent[p] = (silent[p] < LEASE -> silent[p] + 1 : LEASE) fi; p++
              :: else -> break od;
           p = 0; up_for = (!away && up_for < LEASE -> up_for + 1 : up_for) }
#ifndef NO_RESCUE
#ifdef RESCUE_AFTER_A_GAP
    :: atomic { state == running && !away && silent[owner] == LEASE ->
#else
    :: atomic { state == running && !away && silent[owner] == LEASE && up_for == LEASE ->  /* session_rescue.sql */
#endif
           assert(gone(owner)); at_work = false; attempt--;
#ifdef RESCUED_ALIKE
           state = available }
#else
           state = (asked -> cancelled : available) }
#endif
#endif
    :: atomic { over -> break }
    od
}
active proctype person() {             /* job_cancel.sql */
    if
    :: atomic { state == available -> asked = true; state = cancelled }
    :: atomic { state == running -> asked = true;
#ifdef CANCELLED_AT_ONCE
           state = cancelled
#endif
       }
    :: over -> skip
    fi;
    over;
    assert(!at_work)                  /* the next under the cap begins */
}
init { atomic { run process(0); run process(1); run process(2) } }
