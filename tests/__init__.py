"""Tests by kind: unit, contract, sql, migration, faults, e2e, lint."""
