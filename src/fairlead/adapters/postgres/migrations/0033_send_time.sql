-- 0033_send_time: the number of a send is its time, and a sequence that a restore sets back is only its floor (R51).
-- Phase   pre (the version before draws from the sequence alone)
-- Needs   0001_ground_floor

GRANT SELECT, UPDATE ON SEQUENCE send_epoch TO fairlead_engine;  -- send_epoch_raise

-- For the sends of the version before, too, which numbers by the sequence alone.
CREATE FUNCTION send_epoch_of_time() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.epoch := greatest(NEW.epoch, OLD.epoch + 1, (extract(epoch FROM now()) * 1000000)::bigint);
    RETURN NEW;
END $$;
CREATE TRIGGER send_epoch_of_time BEFORE INSERT OR UPDATE OF epoch ON rotation
    FOR EACH ROW EXECUTE FUNCTION send_epoch_of_time();
