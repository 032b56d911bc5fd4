-- stride_of: the charge of one job in virtual time: 1000 divided by the weight of the tenant.
CREATE FUNCTION stride_of(of_tenant text) RETURNS integer LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT greatest(1, round(1000 / coalesce(
        (SELECT coalesce(s.weight, t.weight) FROM tenant_setting s LEFT JOIN tenant_tier t ON t.name = s.tier
         WHERE s.tenant_id = of_tenant), 1)))::integer;
END;
