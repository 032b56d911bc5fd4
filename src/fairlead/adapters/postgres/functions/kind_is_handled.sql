-- kind_is_handled: whether a worker has reported within three minutes that it takes jobs of this kind from this
-- queue.
CREATE FUNCTION kind_is_handled(of_queue text, of_kind text) RETURNS boolean LANGUAGE sql STABLE
RETURN EXISTS (
    SELECT FROM kind_handler h
    WHERE h.queue = of_queue AND h.kind = of_kind AND h.handled_at > now() - interval '3 minutes');
