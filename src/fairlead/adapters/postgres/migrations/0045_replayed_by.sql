-- 0045_replayed_by: an entry that a person replays is resolved by that person, and not by itself.
-- Phase   pre (the version before leaves the column empty, and closes such an entry as auto_resolved)
-- Needs   0001_ground_floor

ALTER TABLE dead_letter ADD COLUMN replayed_by text;  -- who has asked for the replay that is under way; NULL: fairlead

CREATE FUNCTION replay_of_person() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.status := 'manual_resolved';
    NEW.resolved_by := NEW.replayed_by;
    RETURN NEW;
END $$;
CREATE TRIGGER replay_of_person BEFORE UPDATE OF status ON dead_letter FOR EACH ROW
    WHEN (NEW.status = 'auto_resolved' AND NEW.resolution = 'redrive' AND NEW.replayed_by IS NOT NULL)
    EXECUTE FUNCTION replay_of_person();
