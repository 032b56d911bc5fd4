-- job_problem: the first mistake in the arguments of fairlead_enqueue, as text; NULL if there is none.
CREATE FUNCTION job_problem(
    kind text, tenant text, args jsonb, queue text, provider text, account text, group_key text, priority integer,
    delay_s double precision, unique_key text, unique_for_s double precision, expires_in_s double precision,
    tags text[]
) RETURNS text LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT CASE
        WHEN is_name(kind) IS NOT TRUE THEN 'kind: use 1 to 64 of a-z, 0-9, _, ., -'
        WHEN is_internal_kind(kind) THEN 'kind: clean_up and those that begin with token., event. or dead_letter. are fairlead''s own'
        WHEN is_label(tenant, 200) IS NOT TRUE THEN 'tenant: use 1 to 200 bytes without control characters'
        WHEN jsonb_typeof(args) IS DISTINCT FROM 'object' THEN 'args: give a JSON object'
        -- twice the limit in Python, because the server also counts the blanks that it adds
        WHEN octet_length(args::text) > 131072 THEN 'args: they are larger than 64 KiB; give a reference'
        WHEN is_name(queue) IS NOT TRUE THEN 'queue: use 1 to 64 of a-z, 0-9, _, ., -'
        WHEN NOT is_name(provider) THEN 'provider: use 1 to 64 of a-z, 0-9, _, ., -'
        WHEN NOT is_name(account) THEN 'account: use 1 to 64 of a-z, 0-9, _, ., -'
        WHEN account IS NOT NULL AND provider IS NULL THEN 'account: give the provider, too'
        WHEN group_key <> '' AND NOT is_label(group_key, 400)
            THEN 'group_key: use 1 to 400 bytes without control characters'
        WHEN priority NOT BETWEEN 0 AND 3 OR priority IS NULL
            THEN 'priority: give 0 (critical), 1 (urgent), 2 (normal) or 3 (low)'
        WHEN is_delay(delay_s) IS NOT TRUE THEN 'delay_s: give seconds from 0 to 31622400 (366 days)'
        WHEN NOT is_label(unique_key, 200) THEN 'unique_key: use 1 to 200 bytes without control characters'
        WHEN NOT is_delay(unique_for_s) THEN 'unique_for_s: give seconds from 0 to 31622400 (366 days)'
        WHEN unique_for_s IS NOT NULL AND unique_key IS NULL THEN 'unique_for_s: give a unique_key, too'
        WHEN NOT is_delay(expires_in_s) THEN 'expires_in_s: give seconds from 0 to 31622400 (366 days)'
        WHEN expires_in_s <= delay_s THEN 'expires_in_s: it must be longer than delay_s'
        WHEN cardinality(tags) = 0 THEN NULL
        WHEN are_tags(tags) IS NOT TRUE THEN 'tags: give at most 16, of 1 to 64 bytes without control characters'
    END;
END;
