-- failure_added: a job's list of failures with one more: the last 20, with the traceback of the latest only.
CREATE FUNCTION failure_added(failures jsonb, failure jsonb) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN jsonb_array_length(kept) >= 20 THEN kept - 0 ELSE kept END
        || jsonb_build_array(jsonb_build_object('at', now()) || failure)
    FROM (SELECT CASE WHEN failures @? '$[*].details.traceback'
        THEN (SELECT jsonb_agg(one #- '{details,traceback}' ORDER BY n) FROM jsonb_array_elements(failures)
            WITH ORDINALITY AS a (one, n)) ELSE failures END AS kept) AS earlier
$$;
