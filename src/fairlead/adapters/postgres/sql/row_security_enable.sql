-- row_security_enable: enable row security between tenants, or repair it.
-- Takes   nothing
-- Returns nothing
-- Locks   each table of tenants for a moment, one after the other
-- Needs   the owner of the tables, a search_path that finds them, and no transaction around it, because it
--         commits each step
CALL row_security_enable()
