-- job_lane: set the lane of a job that is inserted without one. lane_id is a plain column, because PostgreSQL
-- reads the expression of a generated one again for each update of a row. A statement that raises a priority
-- sets it too.
CREATE FUNCTION job_lane() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    NEW.lane_id := lane_of(NEW.queue, NEW.kind, NEW.provider, NEW.priority, NEW.tenant_id, NEW.group_key);
    RETURN NEW;
END $$;

CREATE TRIGGER job_lane BEFORE INSERT ON job
    FOR EACH ROW WHEN (NEW.lane_id IS NULL) EXECUTE FUNCTION job_lane();
