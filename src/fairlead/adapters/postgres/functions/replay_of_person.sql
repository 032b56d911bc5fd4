-- replay_of_person: close an entry that an operator replayed as resolved by that operator.
CREATE FUNCTION replay_of_person() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.status := 'manual_resolved';
    NEW.resolved_by := NEW.replayed_by;
    RETURN NEW;
END $$;

CREATE TRIGGER replay_of_person BEFORE UPDATE OF status ON dead_letter FOR EACH ROW
    WHEN (NEW.status = 'auto_resolved' AND NEW.resolution = 'redrive' AND NEW.replayed_by IS NOT NULL)
    EXECUTE FUNCTION replay_of_person();
