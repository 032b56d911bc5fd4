/* restore: the database goes back to a backup, and two hosts have journals from before it (R11, R51).
 *
 * A provider that takes the spent token again until its successor was used, answers with another successor, and
 * forgets the one before. One restore at any moment, two hosts; a host stands still or is started at any moment.
 * Holds   no answer takes the place of the live token; in the end the live token is stored, unless one was refused
 * What stands behind an ifdef leaves one safeguard out, and must be seen to break.
 */
#define HOSTS 2
#define SENDS 4
#define at(id, g) ((id - 1) * (SENDS + 2) + g)

byte gen = 1, token = 1, settled, sequence;     /* the row of the credential, and send_epoch */
byte gen_then, token_then, settled_then, sequence_then;
bool restored, refused;
byte live = 1, spent, moment = 10, sends, done;
byte answers[16], epochs[16];                   /* the journals: by host and spent generation */

inline settle(g, e, answer) {         /* is_newer, and credential_settle.sql */
    atomic { if
#ifdef GENERATION_ALONE
    :: gen <= g || (gen == g + 1 && settled && e > settled)
#else
    :: (gen <= g || (gen == g + 1 && settled)) && e > settled
#endif
        -> assert(token != live || answer == live); gen++; token = answer; settled = e
    :: else
    fi }
}
inline catch_up(id) {                 /* replay_journal: one answer after the other */
    atomic {
        g = 0;
        do
        :: g > SENDS -> break
        :: g <= SENDS -> if
            :: epochs[at(id, g)] && (gen <= g || gen == g + 1) -> settle(g, epochs[at(id, g)], answers[at(id, g)])
            :: else
            fi;
            g++
        od
    }
}
proctype host(byte id) {
    byte g, e, answer;
    do
    :: catch_up(id)                   /* a start, or a new history */
    :: atomic { sends < SENDS && !refused && (epochs[at(id, gen)] == 0 || epochs[at(id, gen)] <= settled) ->
        sends++; g = gen; answer = 0; moment++;
#ifdef SEQUENCE_ALONE
        if :: sequence = sequence + 1 :: sequence = sequence + 2 fi;     /* other connections send, too */
        e = sequence;
#else
        e = moment;                     /* endpoint_take.sql: the time of the send */
#endif
        if
        :: token == live -> spent = live; live = sends + 1; answer = live
        :: token == spent -> live = sends + 1; answer = live
        :: token != live && token != spent -> refused = true
        fi };
        if
        :: answer -> atomic { answers[at(id, g)] = answer; epochs[at(id, g)] = e }; settle(g, e, answer)
        :: else
        fi
    :: sends == SENDS || refused -> break
    od;
    atomic { catch_up(id); done++ }
}
active proctype backup() {
    atomic { gen_then = gen; token_then = token; settled_then = settled; sequence_then = sequence };
    atomic { gen = gen_then; token = token_then; settled = settled_then; sequence = sequence_then; restored = true }
}
init {
    atomic { run host(1); run host(2) }
    done == HOSTS && restored;
    byte g, turn;
    do                                /* replay_ahead: answers lie on both hosts */
    :: turn < SENDS -> catch_up(1); catch_up(2); turn++
    :: turn == SENDS -> break
    od;
    assert(token == live || refused)
}
