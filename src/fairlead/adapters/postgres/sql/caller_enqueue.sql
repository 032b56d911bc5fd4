-- caller_enqueue: store jobs in a transaction that is the caller's, by the function that other languages call.
-- Takes   jobs: a JSON list of objects with the parameters of fairlead_enqueue; bound: open dead letters of a
--         queue that refuse new work of a kind they are full of
-- Returns asked_id, job_id (another one where the unique key is taken), key_state (of the job with that key)
-- Locks   as fairlead_enqueue does, in the order of the keys, so that two callers never wait for each other
-- Needs   the right to execute fairlead_enqueue; its name is qualified before it is sent, since the caller's
--         search_path is its own
SELECT asked.job_id AS asked_id, stored.job_id, current_setting('fairlead.key_state') AS key_state  -- of the call before it
FROM (
    SELECT * FROM jsonb_to_recordset(:jobs::text::jsonb) AS one (
        job_id uuid, kind text, tenant text, args jsonb, queue text, provider text, group_key text,
        priority integer, delay_s float8, unique_key text, unique_for_s float8, unique_while text, expires_in_s float8,
        tags text[])
    ORDER BY one.kind, one.tenant, one.unique_key, one.job_id
) AS asked
CROSS JOIN LATERAL (
    SELECT fairlead_enqueue(
        job_id => asked.job_id, kind => asked.kind, tenant => asked.tenant, args => asked.args, queue => asked.queue,
        provider => asked.provider, group_key => asked.group_key, priority => asked.priority,
        delay_s => asked.delay_s, unique_key => asked.unique_key, unique_for_s => asked.unique_for_s,
        unique_while => asked.unique_while, expires_in_s => asked.expires_in_s, tags => asked.tags,
        dead_letter_bound => :bound::bigint) AS job_id
    OFFSET 0  -- a fence: each call is made before its key_state is read
) AS stored
