-- dead_letter_resolve: close an open entry, saying how, who and why (Q9).
-- Takes   dead_letter_id, tenant_id (whose it must be; NULL: anybody's), status, resolution, by, why
-- Gives   dead_letter_id, or no row if it is closed already or not there
-- Locks   the entry's row
-- Needs   the primary key
UPDATE dead_letter SET
    status = :status, resolution = :resolution, resolved_by = :by, resolved_why = :why, resolved_at = now(),
    action_due_at = NULL
WHERE dead_letter_id = :dead_letter_id AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
    AND status = 'pending_review'
RETURNING dead_letter_id
