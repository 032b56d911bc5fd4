-- row_security_enter: from here to the end of the transaction only rows of these tenants are to be seen and written.
-- Takes   role (that row security binds), tenants (none: no rows)
-- Returns nothing of use
-- Locks   nothing
-- Needs   a transaction; membership in the role; the policies of the procedure row_security_enable
SELECT set_config('role', :role, true), set_config('fairlead.tenants', (:tenants::text[])::text, true)
