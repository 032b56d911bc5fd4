-- row_security_enter: restrict the rest of the transaction to the rows of these tenants.
-- Takes   role (that row security binds), tenants (none: no rows)
-- Returns nothing of interest
-- Locks   nothing
-- Needs   a transaction; membership in the role; the policies of the procedure row_security_enable
SELECT set_config('role', :role, true), set_config('fairlead.tenants', (:tenants::text[])::text, true)
