-- 0033_send_time: the number of a send is its time, and a sequence that a restore sets back is only its floor (R51).
-- Phase   pre (the version before draws from the sequence alone)
-- Needs   0001_ground_floor

GRANT SELECT, UPDATE ON SEQUENCE send_epoch TO fairlead_engine;  -- send_epoch_raise

-- For the hour in which both versions may run, the sends of both are numbered by the sequence.
SELECT setval('send_epoch', greatest(last_value, (extract(epoch FROM now() + interval '1 hour') * 1000000)::bigint))
FROM send_epoch WHERE EXISTS (SELECT FROM credential);
