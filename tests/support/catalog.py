"""What a schema consists of, as text: two databases are the same if this text is.

Read from PostgreSQL's own catalogs, by name and definition, never by number; what differs between the
versions of PostgreSQL that we support is left out.
"""

from __future__ import annotations

from fairlead.adapters.postgres.database import Database
from tests.support.rows import rows

QUERIES = {
    "tables": """
        SELECT c.relname AS name, concat_ws(' ', c.relkind::text, c.relpersistence::text,
            CASE WHEN c.relrowsecurity THEN 'row security' END,
            CASE WHEN c.relforcerowsecurity THEN 'forced' END,
            array_to_string(ARRAY(SELECT unnest(c.reloptions) ORDER BY 1), ' ')) AS what
        FROM pg_class c WHERE c.relnamespace = :here AND c.relkind IN ('r', 'v', 'm', 'S', 'p')""",
    "columns": """
        SELECT c.relname || '.' || a.attname AS name, concat_ws(' ', format_type(a.atttypid, a.atttypmod),
            CASE WHEN a.attnotnull THEN 'not null' END, 'default ' || pg_get_expr(d.adbin, d.adrelid)) AS what
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
            LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = :here AND c.relkind IN ('r', 'v', 'p')
            AND a.attnum > 0 AND NOT a.attisdropped""",
    "constraints": """
        SELECT c.relname || '.' || k.conname AS name, pg_get_constraintdef(k.oid) AS what
        FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
        WHERE c.relnamespace = :here AND k.contype <> 'n'""",
    "indexes": """
        SELECT i.relname AS name, regexp_replace(pg_get_indexdef(x.indexrelid), ' ON .*? USING ', ' ON '
            || t.relname || ' USING ') || CASE WHEN x.indisvalid THEN '' ELSE ' INVALID' END AS what
        FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
        WHERE i.relnamespace = :here""",
    "functions": r"""
        SELECT p.oid::regprocedure::text AS name, concat_ws(' ', p.prokind::text, p.provolatile::text,
            CASE WHEN p.prosecdef THEN 'definer' END,
            md5(regexp_replace(regexp_replace(p.prosrc, '--[^\n]*', '', 'g'), '\s+', ' ', 'g')),
            (SELECT string_agg(replace(setting, quote_ident(current_schema()), 'here'), '; ' ORDER BY setting)
                FROM unnest(p.proconfig) setting),
            'to ' || (SELECT string_agg(r.name, ' ' ORDER BY r.name)
                FROM aclexplode(p.proacl) a JOIN :grantee AS r (oid, name) ON r.oid = a.grantee)) AS what
        FROM pg_proc p WHERE p.pronamespace = :here""",
    "bodies": """
        SELECT p.oid::regprocedure::text AS name, md5(pg_get_function_sqlbody(p.oid)) AS what
        FROM pg_proc p WHERE p.pronamespace = :here AND p.prosqlbody IS NOT NULL""",
    "triggers": """
        SELECT c.relname || '.' || t.tgname AS name,
            regexp_replace(pg_get_triggerdef(t.oid), ' ON .*? FOR EACH', ' FOR EACH') AS what
        FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = :here AND NOT t.tgisinternal""",
    "policies": """
        SELECT c.relname || '.' || p.polname AS name, concat_ws(' ', p.polcmd::text,
            ARRAY(SELECT rolname::text FROM pg_roles WHERE oid = ANY(p.polroles) ORDER BY 1)::text,
            pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)) AS what
        FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid WHERE c.relnamespace = :here""",
    "views": """
        SELECT c.relname AS name, md5(pg_get_viewdef(c.oid)) AS what
        FROM pg_class c WHERE c.relnamespace = :here AND c.relkind = 'v'""",
    "grants": """
        SELECT what.name || ' to ' || r.name AS name,
            string_agg(a.privilege_type, ' ' ORDER BY a.privilege_type) AS what
        FROM (
            SELECT relname, relacl FROM pg_class WHERE relnamespace = :here
            UNION ALL SELECT c.relname || '.' || attname, attacl
            FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE c.relnamespace = :here
        ) AS what (name, acl) CROSS JOIN LATERAL aclexplode(what.acl) a
            JOIN :grantee AS r (oid, name) ON r.oid = a.grantee
        GROUP BY what.name, r.name""",
}
HERE = "quote_ident(current_schema())::regnamespace"
GRANTEE = """(
    SELECT oid, rolname::text FROM pg_roles WHERE rolname LIKE 'fairlead%' UNION ALL SELECT 0, 'PUBLIC')"""
VERSION_BOUND = {"bodies", "views"}
"""PostgreSQL prints these differently from version to version: compared, but not kept in a file."""


async def catalog(database: Database, *, to_be_kept: bool = False) -> str:
    """Return the schema of *database* as text, one line for each object."""
    lines: list[str] = []
    for noun, query in QUERIES.items():
        if to_be_kept and noun in VERSION_BOUND:
            continue
        sql = query.replace(":here", HERE).replace(":grantee", GRANTEE)
        records = await rows(database, f"{sql} ORDER BY 1")
        lines.append(f"# {noun}")
        lines += [f"{row['name']}: {' '.join(row['what'].split())}" for row in records]
    return "\n".join(lines) + "\n"
