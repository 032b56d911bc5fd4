-- dead_letter_resolve_connection: close the open entries of a connection that came good (R14).
-- Takes   connection_id, resolution, by, why
-- Gives   dead_letter_id of those closed
-- Locks   their rows
-- Needs   dead_letter_connection_idx
UPDATE dead_letter SET
    status = 'auto_resolved', resolution = :resolution, resolved_by = :by, resolved_why = :why, resolved_at = now(),
    action_due_at = NULL
WHERE connection_id = :connection_id AND status = 'pending_review'
RETURNING dead_letter_id
