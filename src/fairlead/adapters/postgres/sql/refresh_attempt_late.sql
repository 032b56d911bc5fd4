-- refresh_attempt_late: assign an epoch to a send that left long after its SENT mark, because its process stood
-- still.
-- Takes   connection_id, generation (the spent one), left_at (the earliest time at which it left)
-- Returns epoch, above that of every send that was marked before; no row if a later send is marked or about to
--         be marked, or if no send is known
-- Locks   the row of the refresh attempt while it is in progress, otherwise the credential's
-- Needs   refresh_attempt_sent, which refuses once this response is settled: an intent that comes in between
--         loses to it, or is marked before and has the newer response and the higher epoch. Replays wait for
--         this send, too. The caller runs it twice, because a call that waited for a settlement sees neither
--         row. A version that does not write last_sent_at leaves the value of an older generation, which is
--         before refreshed_at
WITH open_attempt AS (
    UPDATE refresh_attempt SET started_at = :left_at::timestamptz
    WHERE connection_id = :connection_id AND from_generation = :generation
        AND phase <> 'intent' AND started_at <= :left_at::timestamptz
    RETURNING epoch
),
settled_attempt AS (
    UPDATE credential SET last_sent_at = :left_at::timestamptz
    WHERE connection_id = :connection_id AND generation = :generation + 1
        AND last_sent_at BETWEEN refreshed_at AND :left_at::timestamptz
    RETURNING settled_epoch AS epoch
)
SELECT greatest(nextval('send_epoch'), previous_send.epoch + 1, (extract(epoch FROM now()) * 1000000)::bigint) AS epoch
FROM (TABLE open_attempt UNION ALL TABLE settled_attempt) AS previous_send;
