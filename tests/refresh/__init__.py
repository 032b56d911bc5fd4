"""The coordinator on real parts: PostgreSQL, journal, vault, wire and a rude issuer."""
