-- 0046_handler_errors: a category for what handlers raise that is no failure of a network or a provider.
-- Phase   pre (the version before it writes none of that category, and reads it as any text)
-- Needs   0001_ground_floor

ALTER TABLE dead_letter DROP CONSTRAINT dead_letter_category_check;
ALTER TABLE dead_letter ADD CONSTRAINT dead_letter_category_check CHECK (category IN (
    'transient_network', 'transient_rate_limit', 'transient_server', 'handler_error', 'permanent_auth',
    'permanent_config', 'permanent_permission', 'permanent_request'));

-- A job's history keeps the last 20 failures, and the traceback of the latest.
CREATE OR REPLACE FUNCTION failure_added(failures jsonb, failure jsonb) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN jsonb_array_length(kept) >= 20 THEN kept - 0 ELSE kept END
        || jsonb_build_array(jsonb_build_object('at', now()) || failure)
    FROM (SELECT CASE WHEN failures @? '$[*].details.traceback'
        THEN (SELECT jsonb_agg(one #- '{details,traceback}' ORDER BY n) FROM jsonb_array_elements(failures)
            WITH ORDINALITY AS a (one, n)) ELSE failures END AS kept) AS earlier
$$;
