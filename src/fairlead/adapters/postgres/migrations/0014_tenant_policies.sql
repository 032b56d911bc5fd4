-- 0014_tenant_policies: the wall of 0013 is raised, table by table.
-- Phase   pre (policies of a role that the version before it never takes)
-- Needs   0013_tenant_wall. Each table is locked for a moment, one after the other, and asked for again where that is
--         refused: hence no transaction around them
-- transaction: none
CALL tenant_wall();
