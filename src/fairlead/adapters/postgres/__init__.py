"""PostgreSQL, the truth: one statement a file (sql/), plain SQL migrations, and the stores over both."""
