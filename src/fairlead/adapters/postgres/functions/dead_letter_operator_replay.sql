-- dead_letter_operator_replay: close an entry that an operator replayed as resolved by that operator, when its
-- replay succeeds.
CREATE FUNCTION dead_letter_operator_replay() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.status := 'manual_resolved';
    NEW.resolved_by := NEW.replayed_by;
    RETURN NEW;
END $$;

CREATE TRIGGER dead_letter_operator_replay BEFORE UPDATE OF status ON dead_letter FOR EACH ROW
    WHEN (NEW.status = 'auto_resolved' AND NEW.resolution = 'redrive' AND NEW.replayed_by IS NOT NULL)
    EXECUTE FUNCTION dead_letter_operator_replay();
