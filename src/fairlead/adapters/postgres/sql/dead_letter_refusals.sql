-- dead_letter_refusals: list the kinds and tenants that a queue refuses because of their open dead letters
-- (Q10).
-- Takes   queue, bound
-- Returns kind, tenant_id (NULL: all tenants)
-- Locks   nothing
-- Needs   the function dead_letter_refusals, which states the rule, and which fairlead_enqueue calls, too;
--         dead_letter_open_idx, which the bound keeps small
SELECT kind, tenant_id FROM dead_letter_refusals(:queue, :bound::bigint)
