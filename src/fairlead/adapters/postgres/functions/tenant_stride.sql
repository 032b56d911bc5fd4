-- tenant_stride: what one job of a tenant costs in virtual time: 1000 divided by the weight of the tenant.
CREATE FUNCTION tenant_stride(of_tenant text) RETURNS integer LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT greatest(1, round(1000 / coalesce(
        (SELECT coalesce(s.weight, t.weight) FROM tenant_setting s LEFT JOIN tenant_tier t ON t.name = s.tier
         WHERE s.tenant_id = of_tenant), 1)))::integer;
END;
