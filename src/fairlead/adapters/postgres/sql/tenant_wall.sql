-- tenant_wall: from here to the end of the transaction only rows of these tenants are to be seen and written.
-- Takes   tenants (none: no rows)
-- Gives   nothing of use
-- Locks   nothing
-- Needs   a transaction; membership in fairlead_tenant; the policies of migration 0014
SELECT set_config('role', 'fairlead_tenant', true), set_config('fairlead.tenants', (:tenants::text[])::text, true)
