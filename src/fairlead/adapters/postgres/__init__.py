"""PostgreSQL, the truth: the schema (schema/, functions/, migrations/), one statement a file (sql/), and the stores."""
