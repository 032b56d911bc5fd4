-- failures_append: append a failure to a job's list, which holds the last 20; only the latest has its
-- traceback.
CREATE FUNCTION failures_append(failures jsonb, failure jsonb) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN jsonb_array_length(entries) >= 20 THEN entries - 0 ELSE entries END
        || jsonb_build_array(jsonb_build_object('at', now()) || failure)
    FROM (SELECT CASE WHEN failures @? '$[*].details.traceback'
        THEN (SELECT jsonb_agg(entry #- '{details,traceback}' ORDER BY n) FROM jsonb_array_elements(failures)
            WITH ORDINALITY AS a (entry, n)) ELSE failures END AS entries) AS earlier
$$;
