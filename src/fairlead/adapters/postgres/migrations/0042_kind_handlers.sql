-- 0042_kind_handlers: which kinds of jobs some process handles, so that work without one is reported (Q14, T3).
-- Phase   pre (the version before it neither reads nor writes it; its workers are not listed)
-- Needs   0006_schedules

-- A row for each kind and queue that a worker takes: when one last said so, as each does once a minute.
CREATE TABLE kind_handler (
    queue text NOT NULL,
    kind text NOT NULL,
    handled_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (queue, kind)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON kind_handler TO fairlead_engine;

-- Whether a worker has said within three minutes that it takes jobs of this kind from this queue.
CREATE FUNCTION kind_is_handled(of_queue text, of_kind text) RETURNS boolean LANGUAGE sql STABLE
RETURN EXISTS (
    SELECT FROM kind_handler h
    WHERE h.queue = of_queue AND h.kind = of_kind AND h.handled_at > now() - interval '3 minutes');
