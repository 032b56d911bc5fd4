-- are_tags: whether these are valid tags of a job. policy/jobs/job.py checks the same.
CREATE FUNCTION are_tags(tags text[]) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT cardinality(tags) <= 16 AND (SELECT bool_and(is_label(tag, 64)) IS NOT FALSE FROM unnest(tags) AS tag)
        AND array_position(tags, NULL) IS NULL;
END;
