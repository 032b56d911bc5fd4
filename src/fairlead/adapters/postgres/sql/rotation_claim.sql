-- rotation_claim: INTENT, "about to send generation g". Mutex, double-check and write-ahead in one write.
-- Takes   connection_ids, rotation_ids, generations, session_ids, leases_s (arrays of one length)
-- Gives   connection_id, rotation_id, epoch of those that were granted
-- Locks   the rotation rows, in key order
-- Needs   the primary keys. A snapshot may be older than the insert, so rotation_sent looks again.
--         Time alone takes over only what was never sent (R7): phase intent without a sent_at.
--         A process takes over its own intent too: it has one flight per connection at most.
--         Asked again with the same rotation_id (a commit in doubt) it grants again.
--         The epoch is the time of the send in microseconds (trigger send_epoch_of_time), raised above every earlier
--         epoch of the connection and the sequence: that counts from before again after a restore, and time goes on (R51).
INSERT INTO rotation AS held (connection_id, tenant_id, rotation_id, from_generation, epoch, phase,
                              session_id, lease_until)
SELECT cr.connection_id, cr.tenant_id, wanted.rotation_id, wanted.generation,
       greatest(nextval('send_epoch'), cr.settled_epoch + 1), 'intent', wanted.session_id,
       now() + wanted.lease_s * interval '1 second'
FROM unnest(:connection_ids::uuid[], :rotation_ids::uuid[], :generations::bigint[], :session_ids::uuid[],
            :leases_s::float8[]) AS wanted (connection_id, rotation_id, generation, session_id, lease_s)
JOIN credential cr USING (connection_id)
WHERE cr.generation = wanted.generation AND cr.state IN ('active', 'unknown')
ORDER BY cr.connection_id
ON CONFLICT (connection_id) DO UPDATE SET
    rotation_id = excluded.rotation_id, from_generation = excluded.from_generation,
    epoch = excluded.epoch, phase = 'intent', session_id = excluded.session_id,
    lease_until = excluded.lease_until, started_at = now(), sent_at = NULL, replays = 0, reason = NULL
WHERE held.from_generation < excluded.from_generation
    OR (held.phase = 'intent' AND held.rotation_id = excluded.rotation_id)
    OR (held.phase = 'intent' AND held.sent_at IS NULL
        AND (held.lease_until < now() OR held.session_id = excluded.session_id OR NOT EXISTS (
            SELECT FROM worker_session s
            WHERE s.session_id = held.session_id AND s.lost_at IS NULL AND s.stopped_at IS NULL)))
RETURNING held.connection_id, held.rotation_id, held.epoch;
