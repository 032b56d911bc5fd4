-- refresh_attempt_late: a place for a send that left long after its SENT mark, as its process stood still in between.
-- Takes   connection_id, generation (the spent one), left_at (when it left, at the earliest)
-- Returns epoch, above that of every send that was marked before; no row where one was marked since, or is about to
--         be, and where none is known
-- Locks   the row of the refresh attempt while it is under way, else the credential's
-- Needs   refresh_attempt_sent to refuse once this answer is settled: an intent that comes in between loses to it, or is
--         marked before and has the newer answer, and the higher epoch. Replays wait for this one, too.
--         To be asked twice: where the first waits for a settlement, it knows of neither row. A version that does
--         not write last_sent_at leaves the one of an older generation, before refreshed_at
WITH under_way AS (
    UPDATE refresh_attempt SET started_at = :left_at::timestamptz
    WHERE connection_id = :connection_id AND from_generation = :generation
        AND phase <> 'intent' AND started_at <= :left_at::timestamptz
    RETURNING epoch
),
over AS (
    UPDATE credential SET last_sent_at = :left_at::timestamptz
    WHERE connection_id = :connection_id AND generation = :generation + 1
        AND last_sent_at BETWEEN refreshed_at AND :left_at::timestamptz
    RETURNING settled_epoch AS epoch
)
SELECT greatest(nextval('send_epoch'), earlier.epoch + 1, (extract(epoch FROM now()) * 1000000)::bigint) AS epoch
FROM (TABLE under_way UNION ALL TABLE over) AS earlier;
