-- lane_uncap: make lanes ready that wait for a place under a cap.
-- Takes   tenant_ids, group_keys, notify
-- Returns nothing of interest
-- Locks   those lanes; never waits
-- Needs   the function lane_uncap
SELECT lane_uncap(:tenant_ids::text[], :group_keys::text[], 500),
    (SELECT count(pg_notify('fairlead_job', '')) WHERE :notify::boolean) AS notifications
