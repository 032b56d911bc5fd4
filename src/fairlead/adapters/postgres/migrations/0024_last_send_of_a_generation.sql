-- 0024_last_send_of_a_generation: when the token that was spent for the stored one was last sent (R7).
-- Phase   pre (the version before it neither reads nor writes it)
-- Needs   0023_grant_moment. NULL: not known; then no send that left late is taken for a later one

-- Two answers to one token are ordered by when their requests left. While a rotation is under way that is its
-- started_at; whose request left late comes when it is over, and has to know all the same.
ALTER TABLE credential ADD COLUMN last_sent_at timestamptz;
