-- job_lane: set the lane of a job that is inserted without one. A statement that raises a priority sets it
-- itself. lane_id is a plain column, because PostgreSQL computes a generated one again for each update of the
-- row.
CREATE FUNCTION job_lane() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    NEW.lane_id := lane_id_of(NEW.queue, NEW.kind, NEW.provider, NEW.priority, NEW.tenant_id, NEW.group_key);
    RETURN NEW;
END $$;

CREATE TRIGGER job_lane BEFORE INSERT ON job
    FOR EACH ROW WHEN (NEW.lane_id IS NULL) EXECUTE FUNCTION job_lane();
