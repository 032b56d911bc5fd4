-- dead_letter_postpone: set when the processor reads an open entry again, and record what it did.
-- Takes   dead_letter_id, last_at (as it was read, because the entry may have been reopened since; NULL: any),
--         action_in_s (NULL: only a person can act), reauth_started, notified
-- Returns nothing
-- Locks   the entry's row
-- Needs   the primary key
UPDATE dead_letter SET
    action_due_at = now() + :action_in_s::float8 * interval '1 second',
    reauth_started_at = CASE WHEN :reauth_started::boolean THEN coalesce(reauth_started_at, now())
                             ELSE reauth_started_at END,
    last_notice_at = CASE WHEN :notified::boolean THEN now() ELSE last_notice_at END
WHERE dead_letter_id = :dead_letter_id AND status = 'pending_review' AND last_at = coalesce(:last_at::timestamptz, last_at)
