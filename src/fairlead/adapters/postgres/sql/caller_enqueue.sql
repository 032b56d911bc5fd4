-- caller_enqueue: store jobs in the caller's own transaction, by the function that other languages call.
-- Takes   jobs: a JSON list of objects with the parameters of fairlead_enqueue; bound: the number of open dead
--         letters from which a queue refuses the kinds that cause most of them
-- Returns asked_id, job_id (another one if the unique key is taken), key_state (of the job with that key)
-- Locks   as fairlead_enqueue, in the order of the keys, so that two callers never deadlock
-- Needs   the right to execute fairlead_enqueue. Its name is qualified before it is sent, because the caller's
--         search_path is its own
-- set by the call in this row
SELECT input.job_id AS asked_id, stored.job_id, current_setting('fairlead.key_state') AS key_state
FROM (
    SELECT * FROM jsonb_to_recordset(:jobs::text::jsonb) AS input (
        job_id uuid, kind text, tenant text, args jsonb, queue text, provider text, group_key text,
        priority integer, delay_s float8, unique_key text, unique_for_s float8, unique_while text, expires_in_s float8,
        tags text[])
    ORDER BY input.kind, input.tenant, input.unique_key, input.job_id
) AS input
CROSS JOIN LATERAL (
    SELECT fairlead_enqueue(
        job_id => input.job_id, kind => input.kind, tenant => input.tenant, args => input.args, queue => input.queue,
        provider => input.provider, group_key => input.group_key, priority => input.priority,
        delay_s => input.delay_s, unique_key => input.unique_key, unique_for_s => input.unique_for_s,
        unique_while => input.unique_while, expires_in_s => input.expires_in_s, tags => input.tags,
        dead_letter_bound => :bound::bigint) AS job_id
    OFFSET 0  -- a fence, so that each call is made before its key_state is read
) AS stored
