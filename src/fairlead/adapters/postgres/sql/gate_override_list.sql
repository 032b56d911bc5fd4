-- gate_override_list: list the overrides in force, the widest scope first.
-- Takes   steps (of a rollout; an override in its last step has no effect, and is left out)
-- Returns kind, tenant_id, provider, account, reason, actor, since, rollout_age_s (NULL: no rollout has
--         started), step_s
-- Locks   nothing
-- Needs   nothing. There are few overrides
SELECT kind, tenant_id, provider, account, reason, actor, since,
    extract(epoch FROM now() - rollout_since)::float8 AS rollout_age_s, step_s
FROM gate_override
WHERE rollout_since IS NULL OR now() < rollout_since + (:steps::int - 1) * step_s * interval '1 second'
ORDER BY provider, tenant_id, account, kind
