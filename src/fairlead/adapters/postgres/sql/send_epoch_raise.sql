-- send_epoch_raise: let later sends have greater epochs than *floor*, also where the clock was set back (R51).
-- Takes   floor
-- Gives   nothing
-- Locks   nothing. Of two that raise at once the lower may win; the next process that starts raises again
-- Needs   endpoint_take, rotation_replay and rotation_late to draw from the sequence
SELECT setval('send_epoch', :floor::bigint) FROM send_epoch WHERE last_value < :floor::bigint;
