-- lane_last_vtime: the greatest virtual time of a tenant's ready lanes in a class; NULL if none is ready. The
-- lanes of a tenant stand one behind the other, so that many of them get no more than one would. Spec: R16.
CREATE FUNCTION lane_last_vtime(of_queue text, of_level smallint, of_tenant text) RETURNS bigint
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
    SELECT vtime FROM lane
    WHERE queue = of_queue AND level = of_level AND tenant_id = of_tenant AND state = 'ready'
        AND vtime >= (SELECT min(f.vtime) FROM lane_floor f WHERE f.queue = of_queue AND f.level = of_level)
    ORDER BY vtime DESC LIMIT 1
$$;
