"""The stores on PostgreSQL, with the schema (schema/, functions/, migrations/) and the statements (sql/)."""
