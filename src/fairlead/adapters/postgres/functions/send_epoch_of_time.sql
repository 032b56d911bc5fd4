-- send_epoch_of_time: number a send by its time, above the sequence send_epoch, which a restore may set back.
-- Spec: R51.
CREATE FUNCTION send_epoch_of_time() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    NEW.epoch := greatest(NEW.epoch, OLD.epoch + 1, (extract(epoch FROM now()) * 1000000)::bigint);
    RETURN NEW;
END $$;

CREATE TRIGGER send_epoch_of_time BEFORE INSERT OR UPDATE OF epoch ON refresh_attempt
    FOR EACH ROW EXECUTE FUNCTION send_epoch_of_time();
