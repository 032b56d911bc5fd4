-- refresh_attempt_replay: store an INTENT to send again a refresh of unknown outcome, as the replay
-- policy allows.
-- Takes   connection_id, attempt_id (the new one), generation, replays (the number that the caller has read),
--         session_id, lease_s
-- Returns epoch; no row if the outcome is known by now, if another live process has the attempt, or if it was
--         replayed since
-- Locks   the row of the refresh attempt
-- Needs   nothing. started_at stays until this one is sent, because only sends count. sent_at stays, which
--         shows that this intent also follows a send of unknown outcome. Of two callers that read that one
--         replay is allowed, the second finds it used
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
