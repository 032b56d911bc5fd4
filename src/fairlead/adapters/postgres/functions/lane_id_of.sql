-- lane_id_of: compute the id of the lane of these names. The text is unambiguous: names hold no slash, and the
-- length of the tenant's id comes before it. Spec: R36.
CREATE FUNCTION lane_id_of(queue text, kind text, provider text, priority smallint, tenant_id text, group_key text)
RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT encode(substr(sha256(convert_to(
        queue || '/' || kind || '/' || coalesce(provider, '') || '/' || priority::text || '/'
        || length(tenant_id)::text || '/' || tenant_id || group_key, 'UTF8')), 1, 16), 'hex')::uuid;
END;
