-- send_epoch_of_time: set the epoch of a send to at least its time in microseconds, because a restore may set
-- the sequence send_epoch back. Spec: R51.
CREATE FUNCTION send_epoch_of_time() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    NEW.epoch := greatest(NEW.epoch, OLD.epoch + 1, (extract(epoch FROM now()) * 1000000)::bigint);
    RETURN NEW;
END $$;

CREATE TRIGGER send_epoch_of_time BEFORE INSERT OR UPDATE OF epoch ON refresh_attempt
    FOR EACH ROW EXECUTE FUNCTION send_epoch_of_time();
