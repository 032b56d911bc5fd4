-- refresh_attempt_replay: INTENT to send once more what was sent with unknown outcome, as the replay policy allows.
-- Takes   connection_id, attempt_id (the new one), generation, replays (as many as its caller has read), session_id,
--         lease_s
-- Returns epoch; no row if the outcome is known by now, another live owner is at it, or it was replayed since
-- Locks   the row of the refresh attempt
-- Needs   started_at stays, too, until this one is sent: the latest send counts, not the will to send again.
--         sent_at stays: it shows that this intent, too, follows a send of unknown outcome. Of two that read that
--         the one replay allowed is still to be had, the second comes after the first has used it up
UPDATE refresh_attempt SET
    attempt_id = :attempt_id, phase = 'intent', epoch = nextval('send_epoch'),  -- raised by send_epoch_of_time
    session_id = :session_id, lease_until = now() + :lease_s::float8 * interval '1 second'
WHERE connection_id = :connection_id AND from_generation = :generation AND replays = :replays::integer
    AND (phase = 'unknown'
        OR (phase = 'intent' AND sent_at IS NOT NULL
            AND (lease_until < now() OR session_id = :session_id OR NOT EXISTS (
                SELECT FROM worker_session s
                WHERE s.session_id = refresh_attempt.session_id AND s.lost_at IS NULL AND s.stopped_at IS NULL))))
RETURNING epoch;
