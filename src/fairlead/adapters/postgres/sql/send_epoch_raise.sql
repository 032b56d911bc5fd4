-- send_epoch_raise: give later sends epochs above *floor*, even if the clock was set back (R51).
-- Takes   floor
-- Returns nothing
-- Locks   nothing. If two processes raise it at once, the lower value may win; the next process that starts
--         raises it again
-- Needs   endpoint_take, refresh_attempt_replay and refresh_attempt_late to take their epochs from the sequence
SELECT setval('send_epoch', :floor::bigint) FROM send_epoch WHERE last_value < :floor::bigint;
