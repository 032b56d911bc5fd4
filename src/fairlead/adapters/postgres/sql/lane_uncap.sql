-- lane_uncap: have lanes that wait for a place under a cap tried again now.
-- Takes   tenant_ids, group_keys, notify
-- Returns nothing of interest
-- Locks   those lanes; never waits
-- Needs   the function lane_uncap
SELECT lane_uncap(:tenant_ids::text[], :group_keys::text[], 500),
    (SELECT count(pg_notify('fairlead_job', '')) WHERE :notify::boolean) AS told
